//go:build linux && (amd64 || arm64)

package beat

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threads are one for each processor.
type threads struct {
	timers []timer
	pipe   [2]int // what each waits for in one call, and what ends that when it is closed
	live   sync.WaitGroup
}

// timer is the system's id of a timer that wakes a thread.
type timer int32

// Start makes the threads, which Stop ends. It is nil where processors are many, or the system does
// not allow it: all is as good as it is without.
func Start() *Beat {
	var own unix.CPUSet
	if runtime.NumCPU() > fewProcessors || unix.SchedGetaffinity(0, &own) != nil {
		return nil
	}
	b := &Beat{}
	if unix.Pipe2(b.pipe[:], unix.O_CLOEXEC) != nil {
		return nil
	}
	made := make(chan timer)
	for cpu, left := 0, own.Count(); left > 0; cpu++ {
		if !own.IsSet(cpu) {
			continue
		}
		left--
		b.live.Go(func() { live(cpu, b.pipe[0], made) })
		if t := <-made; t >= 0 {
			b.timers = append(b.timers, t)
		}
	}
	return b
}

// live is what the thread of a processor does: it waits in one call for the end of the pipe. It tells
// its timer, or -1.
func live(cpu, end int, made chan<- timer) {
	runtime.LockOSThread() // for good: a thread with a processor of its own is nobody else's
	var on unix.CPUSet
	on.Set(cpu)
	t := timer(-1)
	if unix.SchedSetaffinity(0, &on) == nil {
		t = newTimer(unix.Gettid())
	}
	if made <- t; t < 0 {
		return
	}
	// Signals have it go on as if nothing was (signal(7), SA_RESTART).
	for {
		if n, err := unix.Read(end, make([]byte, 1)); err != unix.EINTR || n > 0 {
			break
		}
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_TIMER_DELETE, uintptr(t), 0, 0)
}

// event is a struct sigevent (sigevent(3type)), for one thread.
type event struct {
	value          uint64
	signal, notify int32
	thread         int32
	_              [44]byte
}

// ofThread is SIGEV_THREAD_ID.
const ofThread = 4

// newTimer is a timer that wakes a thread by a signal, or -1. The signal is what the runtime
// interrupts threads by that work; it takes no notice of one that it has not sent.
func newTimer(thread int) timer {
	e := event{signal: int32(unix.SIGURG), notify: ofThread, thread: int32(thread)}
	t := timer(-1)
	if _, _, errno := syscall.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&e)), uintptr(unsafe.Pointer(&t))); errno != 0 {
		return -1
	}
	return t
}

// set starts or stops the timers.
func (t *threads) set(on bool) {
	var spec unix.ItimerSpec
	if on {
		spec.Interval = unix.NsecToTimespec(interval.Nanoseconds())
		spec.Value = spec.Interval
	}
	for _, id := range t.timers {
		_, _, _ = syscall.RawSyscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	}
}

func (t *threads) stop() {
	_ = unix.Close(t.pipe[1])
	t.live.Wait()
	_ = unix.Close(t.pipe[0])
	t.timers = nil
}
