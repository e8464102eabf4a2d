package serving

// handlerStack is about what a handler needs of stack, in bytes.
const handlerStack = 10 << 10

// needStack gives a request's goroutine the stack that its handlers will need, at once
// and while there is next to nothing on it. A stack that grows on the way, below sixty
// frames, has them all copied and looked up, which can cost more than a small read. What
// runs for long is better left alone: it holds what it once needed.
//
//go:noinline
func needStack(i int) byte {
	var frame [handlerStack]byte
	return frame[uint(i)%handlerStack]
}
