package app

import (
	"os"
	"runtime"
)

// fewProcessors are those of which one that is taken shows.
const fewProcessors = 4

// spareProcessor has the scheduler of Go use one thread more than there are processors, where
// there are few, until restore: what is dealt with at length, such as a large object, keeps
// a thread for 10 ms at a time, and when all are kept nobody takes in what comes from the
// network. The system deals more finely. What is limited by the number of processors is built
// before. The environment variable GOMAXPROCS says for good how many there are.
func spareProcessor() (restore func()) {
	n := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") != "" || n > fewProcessors {
		return func() {}
	}
	runtime.GOMAXPROCS(n + 1)
	return func() { runtime.GOMAXPROCS(n) }
}
