"""The backend is known whichever module a program imports first; the package has to be installed by pip for the last."""

from __future__ import annotations

import subprocess
import sys
import unittest

import torch

IS_KNOWN = "import torch.distributed as dist; assert 'phalanx' in dist.Backend.backend_list, dist.Backend.backend_list"


class Importing(unittest.TestCase):
    def test_the_backend_is_known_after_either_import(self):
        # Before 2.5 PyTorch did not look for backends by itself.
        alone = ["import torch"] if hasattr(torch, "_is_device_backend_autoload_enabled") else []
        for first in ["import phalanx", "import torch, phalanx", "import phalanx, torch", *alone]:
            with self.subTest(first):
                program = [sys.executable, "-c", f"{first}; {IS_KNOWN}"]
                ran = subprocess.run(program, capture_output=True, text=True, timeout=120)
                self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    unittest.main()
