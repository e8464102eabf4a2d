package hostile

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

const (
	roundRobinPolicy = 2 // SCHED_RR
	// lowNice gives a process a tenth of the CPU time of one with the usual priority. An idle process
	// would get none on a machine with other load, and the tests would not end.
	lowNice = 10
)

// lowerPriority gives this process, which runs the attackers, little CPU time that the server needs,
// as if they ran on other machines.
func lowerPriority() error { return setNice(lowNice) }

// restorePriority reverts lowerPriority. A server that starts afterwards has the usual priority. It
// needs root.
func restorePriority() error { return setNice(0) }

// raisePriority gives this process, the probe client, real-time priority, as if it ran on another
// machine. It needs root.
func raisePriority() error { return setSchedulingPolicy(roundRobinPolicy, 1) }

// setNice sets the nice value of all threads. New threads inherit it.
func setNice(nice int) error {
	return forEachThread(func(id int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, id, nice) })
}

// setSchedulingPolicy sets the scheduling policy of all threads. New threads inherit it.
func setSchedulingPolicy(policy int, priority int32) error {
	return forEachThread(func(id int) error {
		_, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(id), uintptr(policy),
			uintptr(unsafe.Pointer(&priority)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// forEachThread calls set for each thread of the process, except for those that have ended.
func forEachThread(set func(id int) error) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range threads {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		if err := set(id); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
