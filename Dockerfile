# The embedded broker as a container, for tests in any language: docs/control-port.md
#
#     docker build --tag kip848-broker .
#     docker run --rm --publish 127.0.0.1:9092:9092 kip848-broker
FROM python:3.13-slim AS wheel
COPY . /source
RUN pip wheel --no-deps --wheel-dir /wheel /source

# Wheels only: it needs no compiler, and is the same on amd64 and arm64.
FROM python:3.13-slim
COPY --from=wheel /wheel /wheel
RUN wheel=$(ls /wheel/*.whl) && pip install --no-cache-dir --only-binary :all: "$wheel[re2]" \
    && useradd --system kip848 && mkdir /data && chown kip848 /data
USER kip848
VOLUME /data
EXPOSE 9092
HEALTHCHECK --interval=2s --timeout=2s --retries=15 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9092), 1)"]
ENTRYPOINT ["kip848", "broker", "--data-dir", "/data", "--allow-remote", "--allow-anonymous"]
CMD ["--listen", "0.0.0.0:9092=localhost:9092"]
