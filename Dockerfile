# The embedded broker as a container, for tests in any language (docs/control-port.md), and the page of groups
#
#     docker build --tag kip848-broker .
#     docker run --rm --publish 127.0.0.1:9092:9092 kip848-broker
FROM python:3.13.9-slim-bookworm AS wheel
COPY . /source
RUN pip wheel --no-deps --wheel-dir /wheel /source

# Wheels only: it needs no compiler, and is the same on amd64 and arm64.
FROM python:3.13.9-slim-bookworm
COPY --from=wheel /wheel /wheel
RUN wheel=$(ls /wheel/*.whl) && pip install --no-cache-dir --only-binary :all: "$wheel[re2,page]" \
    && useradd --system --uid 10001 --user-group kip848 && mkdir /data && chown 10001:10001 /data
# A number, so that Kubernetes sees that it is not root (runAsNonRoot).
USER 10001:10001
VOLUME /data
EXPOSE 9092
# Asks the control port, wherever the command has put it, with bash alone: a Python every two seconds is a load.
HEALTHCHECK --interval=2s --timeout=2s --retries=15 \
    CMD ["bash", "-c", "[[ $(< /tmp/ready.json) =~ '\"control\"'[^,]*:([0-9]+)'\"' ]] && exec 3<> /dev/tcp/127.0.0.1/${BASH_REMATCH[1]} && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [[ $status == 200 ]]"]
ENTRYPOINT ["kip848", "broker", "--data-dir", "/data", "--allow-remote", "--allow-anonymous", "--ready-file", "/tmp/ready.json", "--control", "127.0.0.1:9640"]
CMD ["--listen", "0.0.0.0:9092=localhost:9092"]
