"""Models whose training is emulated: their sizes, and the bytes and work that follow from them."""
