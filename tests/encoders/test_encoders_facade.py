"""The room's door names what people import, and opens nothing heavy before it is asked for."""

import subprocess
import sys


def test_public_names_load_on_first_use():
    code = (
        "import sys, stsbench.encoders as room\n"
        "assert not {'numpy', 'torch'} & set(sys.modules)\n"
        "names = [getattr(room, name) for name in room.__all__]\n"
        "assert set(room.__all__) == set(room._PUBLIC) and 'torch' not in sys.modules\n"
        "try: room.nothing\n"
        "except AttributeError as error: assert 'nothing' in str(error)\n"
        "else: raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
