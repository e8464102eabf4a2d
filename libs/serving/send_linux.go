package serving

import (
	"syscall"
	"unsafe"
)

// ownWrites tells that syscallWrite is there.
const ownWrites = true

// syscallWrite gives bytes, one at least, to a socket that does not block. The scheduler of
// Go is not told of the call: it would have another thread take the processor over meanwhile,
// and then more threads would work than there are processors, so that those of short answers
// wait until the system has given each its time.
func syscallWrite(fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// giveWay lets threads go first that wait for this one's processor.
func giveWay() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
