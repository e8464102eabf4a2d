package serving

// handlerStack is the approximate stack size that a handler needs, in bytes.
const handlerStack = 10 << 10

// growStack grows the goroutine's stack to the size that handlers need while it is almost empty. A
// stack that grows later, below sixty frames, has to be copied and adjusted, which can cost more
// than a small read. Long-running requests are excluded, because they would keep the memory.
//
//go:noinline
func growStack(i int) byte {
	var frame [handlerStack]byte
	return frame[uint(i)%handlerStack]
}
