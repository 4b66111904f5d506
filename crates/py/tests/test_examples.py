"""Each example runs as its first lines say."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "python"
# What one rank of each prints at least.
TOLD = {
    "switch_from_gloo.py": ["desync of ranks [0, 1]", "count 10", "count 11", "all 2 ranks go on"],
    "ddp.py": ["the loss fell from"],
    "fsdp2.py": ["the loss fell from", "of 2177 parameters"],
}


# Half of its ranks are this program in Rust, which `interop/python` builds.
MIXED, MIXED_IN_RUST = EXAMPLES / "mixed.py", os.environ.get("PHALANX_TEST_MIXED_EXAMPLE")


class Examples(unittest.TestCase):
    def test_each_runs_under_torchrun(self):
        self.assertEqual({path.name for path in EXAMPLES.glob("*.py")}, {*TOLD, MIXED.name})
        for name, told in TOLD.items():
            with self.subTest(name):
                launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
                ran = subprocess.run([*launcher, EXAMPLES / name], capture_output=True, text=True, timeout=240)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                for words in told:
                    self.assertIn(words, ran.stdout)

    @unittest.skipUnless(MIXED_IN_RUST, "needs PHALANX_TEST_MIXED_EXAMPLE: interop/python")
    def test_a_mixed_world_exchanges_tensors(self):
        size = 4
        with tempfile.TemporaryDirectory() as scratch:
            ranks = []
            for rank in range(size):
                program = [MIXED_IN_RUST] if rank < size // 2 else [sys.executable, MIXED]
                url = f"file://{scratch}/world?rank={rank}&world_size={size}"
                ranks.append(
                    subprocess.Popen([*program, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                )
            told = [rank.communicate(timeout=120) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * size, told)
        for rank, (out, _) in enumerate(told):
            language = "Rust" if rank < size // 2 else "Python"
            self.assertIn(f"rank {rank}, {language}: weights [0.0, 1.0, 2.0, 3.0], mean gradient 1.5", out)


if __name__ == "__main__":
    unittest.main()
