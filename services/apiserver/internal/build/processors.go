package build

import (
	"os"
	"runtime"
)

// fewProcessors are those of which one that is taken shows.
const fewProcessors = 4

// spareProcessor has the scheduler of Go use more threads than there are processors, where
// there are few, until restore: what is dealt with at length, such as a large object, keeps
// a thread for 10 ms at a time, and when all are kept nobody takes in what comes from the
// network. The system deals more finely. What is limited by the number of processors is built
// before. The environment variable GOMAXPROCS says for good how many there are.
func spareProcessor() (restore func()) {
	n := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") != "" || n > fewProcessors {
		return func() {}
	}
	runtime.GOMAXPROCS(threads(n, runtime.NumCPU()))
	return func() { runtime.GOMAXPROCS(n) }
}

// threads is how many there are for n processors of a machine. The collector of garbage has
// a thread of its own from four on; of less it takes its share from all, some milliseconds at
// a time in which the requests of that thread wait. One processor is not shared by four, and
// with less than the machine has, four at once use up what the process may have.
func threads(n, machine int) int {
	if n == 2 && machine == n {
		return 4
	}
	return n + 1
}

// workedOn tells who has to know that so many more large things are worked on, or fewer.
func (p *parts) workedOn(more int) {
	p.pacer.Large(more)
	p.beat.Large(more)
}
