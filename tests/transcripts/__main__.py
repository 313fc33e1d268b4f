"""``python -m tests.transcripts``: write the outcomes of all transcripts anew."""

from tests.transcripts.language import rewrite

if __name__ == "__main__":
    print(f"{rewrite()} transcripts changed")
