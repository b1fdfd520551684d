"""Fetches two recordings of speech from the source archive of silero-vad 6.2.3 (MIT): `python fetch_speech.py`."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FILES = {
    "silero_vad-6.2.3/tests/data/test.wav": "first.wav",
    "silero_vad-6.2.3/examples/c++/aepyx.wav": "second.wav",
}

if __name__ == "__main__":
    folder = Path(__file__).parent / "speech"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        asked = ["download", "-q", "--no-deps", "--no-binary", ":all:", "-d", place, "silero-vad==6.2.3"]
        subprocess.run([sys.executable, "-m", "pip", *asked], check=True)
        (archive,) = Path(place).glob("*.tar.gz")
        with tarfile.open(archive) as held:
            for name, kept in FILES.items():
                (folder / kept).write_bytes(held.extractfile(name).read())
