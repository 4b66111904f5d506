//! How requests and replies travel: PyTorch's words, and ours.
