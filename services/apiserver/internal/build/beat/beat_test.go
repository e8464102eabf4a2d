//go:build linux && (amd64 || arm64)

package beat

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func start(t *testing.T) *Beat {
	t.Helper()
	b := Start()
	if b == nil {
		if runtime.NumCPU() <= fewProcessors {
			t.Error("there is none, and processors are few")
		}
		t.Skip("processors are many")
	}
	t.Cleanup(b.Stop)
	return b
}

// running tells which timers run.
func (b *Beat) running(t *testing.T) (n int) {
	t.Helper()
	for _, id := range b.timers {
		var spec unix.ItimerSpec
		if _, _, errno := syscall.Syscall(unix.SYS_TIMER_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&spec)), 0); errno != 0 {
			t.Fatal(errno)
		}
		if spec.Interval.Nano() != 0 {
			n++
		}
	}
	return n
}

// There is a beat on each processor as long as there is something large, and no longer.
func TestLarge(t *testing.T) {
	b := start(t)
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	all := own.Count()
	for i, step := range []struct{ more, want int }{{0, 0}, {1, all}, {2, all}, {-2, all}, {-1, 0}, {1, all}, {-1, 0}} {
		b.Large(step.more)
		if got := b.running(t); got != step.want {
			t.Errorf("step %d: %d timers run, want %d", i, got, step.want)
		}
	}
}

// Work that comes in masses has beats until there has been none for a while.
func TestWork(t *testing.T) {
	b := start(t)
	for range 2 {
		b.Work()
		b.Large(1)
		b.Large(-1)
		if got := b.running(t); got != len(b.timers) {
			t.Fatalf("%d timers run while there is work", got)
		}
		until(t, func() (string, bool) {
			n := b.running(t)
			return fmt.Sprintf("%d timers run after work", n), n == 0
		})
	}
}

// until waits for what is to become true, or tells what is so instead.
func until(t *testing.T, is func() (string, bool)) {
	t.Helper()
	limit := time.After(20 * time.Second)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		instead, ok := is()
		if ok {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatal(instead)
		}
	}
}

// Stop may be called again, when what it closed is somebody else's.
func TestStopTwice(t *testing.T) {
	b := start(t)
	b.Large(1)
	b.Stop()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	b.Work()
	b.Large(-1)
	for _, end := range ends {
		if err := unix.Close(end); err != nil {
			t.Errorf("what somebody has opened since: %v", err)
		}
	}
}

// What Start makes is gone after Stop, whoever tells of work meanwhile.
func TestNothingIsLeft(t *testing.T) {
	count := func(kind string) int {
		found, err := os.ReadDir("/proc/self/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	timers := func() int {
		text, err := os.ReadFile("/proc/self/timers")
		if err != nil {
			t.Skip(err)
		}
		return strings.Count(string(text), "ID:")
	}
	start(t).Stop()
	files, before, threads := count("fd"), timers(), count("task")
	for range 100 {
		b := Start()
		var busy sync.WaitGroup
		for range 4 {
			busy.Go(func() {
				for range 50 {
					b.Large(1)
					b.Work()
					b.Large(-1)
				}
			})
		}
		b.Stop()
		busy.Wait()
	}
	if n := count("fd"); n > files {
		t.Errorf("%d files are open, before %d", n, files)
	}
	if n := timers(); n > before {
		t.Errorf("%d timers are left, before %d", n, before)
	}
	until(t, func() (string, bool) {
		n := count("task")
		return fmt.Sprintf("%d threads, before %d", n, threads), n <= threads+8
	})
}

// Who has no Beat tells it the same.
func TestNone(t *testing.T) {
	var b *Beat
	b.Large(1)
	b.Work()
	b.Stop()
}

// The threads are woken, by the system alone, and do not end of it.
func TestThreadsAreWoken(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the threads have no processor of their own by which they are known")
	}
	over := woken(t) // the first thread of a process cannot end, and may have been one
	b := start(t)
	before := woken(t)
	maps.DeleteFunc(before, func(id string, _ int) bool { return over[id] > 0 })
	if len(before) != len(b.timers) {
		t.Fatalf("threads with a processor of their own: %v, want %d", before, len(b.timers))
	}
	b.Large(1)
	until(t, func() (string, bool) {
		now, more := woken(t), 0
		for id, times := range before {
			if now[id] >= times+20 {
				more++
			}
		}
		return fmt.Sprintf("woken %v, before %v", now, before), more == len(before)
	})
}

// woken is how often each thread slept that has a processor of its own.
func woken(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	of := regexp.MustCompile(`(?s)Cpus_allowed_list:\s(\d+)\n.*\nvoluntary_ctxt_switches:\s(\d+)`)
	found := map[string]int{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		if m := of.FindSubmatch(text); m != nil {
			n, err := strconv.Atoi(string(m[2]))
			if err != nil {
				t.Fatal(err)
			}
			found[name] = n
		}
	}
	return found
}
