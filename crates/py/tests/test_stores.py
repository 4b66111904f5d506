"""The store as PyTorch uses it, and between our ends and PyTorch's."""

from __future__ import annotations

import os
import pickle
import re
import threading
import time
import unittest
from datetime import timedelta
from multiprocessing import get_context
from unittest import mock

import torch
import torch.distributed as dist

import phalanx
from phalanx.joining import Options, meet
from ranks import on_ranks


class Stores(unittest.TestCase):
    def setUp(self):
        self.store = phalanx.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20))

    def test_it_does_what_a_store_does(self):
        store = self.store
        store.set("a", "one")
        self.assertEqual(store.get("a"), b"one")
        self.assertEqual((store.add("n", 5), store.add("n", -2), store.get("n")), (5, 3, b"3"))
        self.assertEqual(store.compare_set("a", "one", "two"), b"two")
        self.assertEqual(store.compare_set("a", "one", "three"), b"two")
        store.append("a", "!")
        store.multi_set(["x", "y"], ["1", b"\x00\xff"])
        self.assertEqual(store.multi_get(["x", "y", "a"]), [b"1", b"\x00\xff", b"two!"])
        self.assertTrue(store.check(["x", "y"]))
        self.assertTrue(store.delete_key("x"))
        self.assertFalse(store.delete_key("x") or store.check(["x"]))
        self.assertEqual(store.num_keys(), 3)

    def test_a_wait_that_is_in_vain_ends_with_pytorchs_error(self):
        with self.assertRaises(dist.DistStoreError) as caught:
            self.store.wait(["never"], timedelta(milliseconds=100))
        self.assertEqual(caught.exception.kind, "timeout")
        self.assertIn("never", str(caught.exception))

    def test_pytorchs_prefixes_and_its_clients_see_the_same_keys(self):
        theirs = dist.TCPStore("127.0.0.1", self.store.port, is_master=False, wait_for_workers=False)
        dist.PrefixStore("p", self.store).set("key", "value")
        self.assertEqual(theirs.get("p/key"), b"value")
        late = threading.Thread(target=theirs.set, args=("late", "now"))
        late.start()
        self.assertEqual(self.store.get("late"), b"now")
        late.join()
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ours = phalanx.TCPStore("127.0.0.1", server.port)
        server.set("theirs", "1")
        self.assertEqual(ours.get("theirs"), b"1")

    def test_queues_hand_each_value_to_one_taker(self):
        store, other = self.store, phalanx.TCPStore("127.0.0.1", self.store.port).clone()
        store.queue_push("q", "one")
        store.queue_push("q", b"two")
        self.assertEqual(
            (other.queue_len("q"), other.queue_pop("q"), store.queue_pop("q", block=False)), (2, b"one", b"two")
        )
        with self.assertRaisesRegex(dist.DistStoreError, "'q' is empty"):
            store.queue_pop("q", block=False)
        other.set_timeout(timedelta(milliseconds=100))
        with self.assertRaises(phalanx.StoreFailure) as caught:
            other.queue_pop("q")
        self.assertEqual(caught.exception.kind, "timeout")
        store.set("key", "")
        self.assertEqual((store.list_keys(), store.queue_len("none")), (["key"], 0))

    def test_a_time_that_a_prefix_sets_is_that_of_the_store(self):
        prefixed = dist.PrefixStore("p", self.store)
        prefixed.set_timeout(timedelta(milliseconds=150))
        self.assertEqual(self.store.timeout, timedelta(milliseconds=150))
        began = time.monotonic()
        with self.assertRaises(dist.DistStoreError):
            prefixed.get("never")
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(self.store.clone().timeout, timedelta(milliseconds=150))

    def test_no_time_is_the_default_one(self):
        store = phalanx.TCPStore("127.0.0.1", 0, 1, True, timedelta(0))
        store.set_timeout(timedelta(0))
        later = threading.Timer(0.2, store.clone().set, ("late", b"1"))
        later.start()
        self.assertEqual(store.get("late"), b"1")
        later.join()

    def test_a_process_may_share_its_server(self):
        first = phalanx.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
        second = phalanx.TCPStore("127.0.0.1", first.port, None, True, timedelta(seconds=20), False, True, None, False)
        first.set("a", "1")
        self.assertEqual(second.get("a"), b"1")
        del first
        self.assertEqual(second.get("a"), b"1")
        with self.assertRaises(dist.DistStoreError):
            phalanx.TCPStore("127.0.0.1", second.port, is_master=True)
        with self.assertRaisesRegex(ValueError, "master_listen_fd is 7"):
            phalanx.TCPStore("127.0.0.1", 0, is_master=True, master_listen_fd=7)

    def test_failures_go_from_process_to_process_with_what_they_say(self):
        with self.assertRaises(phalanx.StoreFailure) as caught:
            self.store.wait(["never"], timedelta(milliseconds=1))
        told = pickle.loads(pickle.dumps(caught.exception))
        self.assertIsInstance(told, phalanx.StoreFailure)
        self.assertEqual((str(told), told.kind), (str(caught.exception), "timeout"))

    def test_what_pytorchs_own_store_does_not_take_is_refused(self):
        theirs = dist.TCPStore("127.0.0.1", self.store.port, is_master=False, wait_for_workers=False)
        for store in (theirs, self.store):
            for call in (
                lambda: store.set("a", 5),
                lambda: store.set("a", True),
                lambda: store.set("a", None),
                lambda: store.append("a", 5),
                lambda: store.compare_set("a", 5, "x"),
                lambda: store.compare_set("a", "x", 5),
                lambda: store.queue_push("a", 5),
                lambda: store.multi_set(["a"], [5]),
                lambda: store.multi_set("a", ["1"]),
                lambda: store.multi_set(["a"], "1"),
                lambda: store.multi_set(["a"], b"1"),
                lambda: store.multi_get("ab"),
                lambda: store.check("ab"),
                lambda: store.check(b"ab"),
                lambda: store.wait("ab"),
                lambda: store.wait("ab", timedelta(seconds=1)),
            ):
                with self.assertRaises(TypeError):
                    call()
        self.assertEqual(self.store.num_keys(), 0)
        with self.assertRaisesRegex(TypeError, "^phalanx: set: value is a int, must be a str or bytes$"):
            self.store.set("a", 5)
        with self.assertRaisesRegex(TypeError, "^phalanx: check: keys are a str, must be a list$"):
            self.store.check("ab")

    def test_values_that_come_through_pytorchs_prefixes_are_bytes(self):
        prefixed = dist.PrefixStore("p", self.store)
        prefixed.multi_set(["x", "y"], ["1", "\x02"])
        prefixed.append("x", "!")
        self.assertEqual(prefixed.compare_set("x", "1!", "two"), b"two")
        self.assertEqual(self.store.multi_get(["p/x", "p/y"]), [b"two", b"\x02"])
        self.store.set("bytes", bytearray(b"\x00\xff"))
        self.assertEqual(self.store.get("bytes"), b"\x00\xff")

    def test_a_store_that_is_lost_or_not_reached_is_pytorchs_network_error_too(self):
        server = phalanx.TCPStore("127.0.0.1", 0, is_master=True)
        client = phalanx.TCPStore("127.0.0.1", server.port, timeout=timedelta(milliseconds=200))
        for call in (
            lambda: phalanx.TCPStore("127.0.0.1", server.port, is_master=True),
            lambda: server._server.close() or client.get("a"),
            lambda: phalanx.TCPStore("127.0.0.1", server.port, timeout=timedelta(milliseconds=200)),
        ):
            with self.assertRaises(phalanx.StoreFailure) as caught:
                call()
            self.assertIsInstance(caught.exception, dist.DistNetworkError)
            self.assertEqual(caught.exception.kind, "setup")
            told = pickle.loads(pickle.dumps(caught.exception))
            self.assertIsInstance(told, dist.DistNetworkError)
        # Nothing is wrong with the network where one has waited in vain, or has not the key.
        locked = phalanx.TCPStore("127.0.0.1", 0, is_master=True, key="5a" * 32)
        for call in (
            lambda: self.store.wait(["never"], timedelta(milliseconds=1)),
            lambda: phalanx.TCPStore("127.0.0.1", locked.port, key="a5" * 32, timeout=timedelta(seconds=5)),
        ):
            with self.assertRaises(phalanx.StoreFailure) as caught:
                call()
            self.assertNotIsInstance(caught.exception, dist.DistNetworkError)

    def test_a_key_keeps_strangers_out(self):
        secret = "5a" * 32
        store = phalanx.TCPStore("127.0.0.1", 0, is_master=True, key=secret)
        friend = phalanx.TCPStore("127.0.0.1", store.port, key=secret)
        store.set("a", "1")
        self.assertEqual(friend.get("a"), b"1")
        with self.assertRaises(dist.DistStoreError) as caught:
            phalanx.TCPStore("127.0.0.1", store.port, key="a5" * 32, timeout=timedelta(seconds=5))
        self.assertIn("store connect", str(caught.exception))

    def test_without_a_key_a_store_beyond_this_machine_is_refused_unless_that_is_said(self):
        environment = {name: text for name, text in os.environ.items() if name != "PHALANX_INSECURE"}
        with mock.patch.dict(os.environ, environment, clear=True):
            # The first is nobody's: it is for examples.
            for host in ("192.0.2.1", "0.0.0.0", "::", "node-7.invalid"):
                for port, is_master, multi_tenant in ((0, True, False), (0, True, True), (1, False, False)):
                    with self.subTest(host, is_master=is_master), self.assertRaises(ValueError) as caught:
                        phalanx.TCPStore(host, port, is_master=is_master, multi_tenant=multi_tenant)
                    told = f"phalanx: TCPStore: host_name is {re.escape(host)}, must be .*: give key=, or say insecure=True"
                    self.assertRegex(str(caught.exception), f"^{told}")
            phalanx.TCPStore("0.0.0.0", 0, is_master=True, key="5a" * 32)
            for local in ("127.0.0.1", "localhost"):
                phalanx.TCPStore(local, 0, is_master=True)

    def test_a_store_that_is_called_insecure_serves_a_network_without_a_key(self):
        store = phalanx.TCPStore("0.0.0.0", 0, is_master=True, insecure=True)
        store.set("a", "1")
        self.assertEqual(phalanx.TCPStore("127.0.0.1", store.port).get("a"), b"1")
        with mock.patch.dict(os.environ, PHALANX_INSECURE="1"):
            self.assertEqual(phalanx.TCPStore("0.0.0.0", store.port).get("a"), b"1")
        with mock.patch.dict(os.environ, PHALANX_INSECURE="perhaps"):
            with self.assertRaisesRegex(phalanx.StoreFailure, 'PHALANX_INSECURE is "perhaps", must be 1 or 0'):
                phalanx.TCPStore("0.0.0.0", store.port)

    def test_groups_form_again_on_a_store_where_the_former_door_still_stands(self):
        on_ranks(2, meet_again)

    def test_a_forked_child_leaves_the_server_alone(self):
        child = get_context("fork").Process(target=self.store._server.close)
        began = time.monotonic()
        child.start()
        child.join(30)
        self.assertEqual(child.exitcode, 0)
        self.assertLess(time.monotonic() - began, 4, "the child waited for a thread that it does not have")
        self.store.set("still", "here")
        self.assertEqual(self.store.get("still"), b"here")

    def test_groups_of_gloo_form_on_it(self):
        def rank(number: int, told: list) -> None:
            store = phalanx.TCPStore("127.0.0.1", self.store.port)
            group = dist.ProcessGroupGloo(dist.PrefixStore("g", store), number, 2, timedelta(seconds=30))
            data = torch.full((3,), number + 1.0)
            group.allreduce([data]).wait()
            told.append(data.tolist())

        told: list = []
        threads = [threading.Thread(target=rank, args=(number, told)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(told, [[3.0] * 3] * 2)


def meet_again(rank: int, size: int) -> None:
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    # Some stores cannot forget, and a rank may be slow to.
    with mock.patch("phalanx.rounds.Rounds.forget"):
        for turn in range(3):
            if turn and rank:
                store.set(f"looks/{turn}", "")
            elif turn:
                store.get(f"looks/{turn}")
            meet(store, rank, size, "again", timedelta(seconds=30), Options())


if __name__ == "__main__":
    unittest.main()
