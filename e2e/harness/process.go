package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startTimeout is how long a process may take to become ready. It allows for a machine that
	// builds and tests other packages at the same time.
	startTimeout = 60 * time.Second
	// stopTimeout is how long a process may take to exit after SIGTERM before it is killed.
	stopTimeout = 30 * time.Second
	// pollInterval is the pause between two checks of a condition.
	pollInterval = 10 * time.Millisecond
	// loggedTail is how many bytes of a process' log a failed test prints.
	loggedTail = 16 << 10
)

// Process is a program that can be started repeatedly. It is not safe for concurrent use.
type Process struct {
	t       testing.TB
	name    string   // for messages and the log file
	path    string   // of the program
	logFile string   // gets the output of all runs
	env     []string // added to the environment of the test

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has exited
	err  error         // result of cmd.Wait; read after done is closed
}

// NewProcess describes a process; Start runs it. It is killed at the end of the test if it still
// runs.
func NewProcess(t testing.TB, name, path string) *Process {
	t.Helper()
	process := &Process{t: t, name: name, path: path, logFile: filepath.Join(t.TempDir(), name+".log")}
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, process.logTail())
		}
	})
	return process
}

// Start runs the program with args.
func (p *Process) Start(args ...string) {
	p.t.Helper()
	if p.Running() {
		p.t.Fatalf("%s is already running", p.name)
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(p.path, args...)
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = childAttributes()
	err = cmd.Start()
	if closeErr := log.Close(); err != nil || closeErr != nil {
		p.t.Fatalf("start %s: %v", p.name, errors.Join(err, closeErr))
	}
	done := make(chan struct{})
	p.cmd = cmd
	p.done = done
	p.err = nil
	go func() {
		defer close(done)
		p.err = cmd.Wait()
	}()
}

// Running reports whether the process has been started and has not exited.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// PID returns the process ID of the running process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill sends SIGKILL to the process, if it runs, and waits until it has exited.
func (p *Process) Kill() {
	if !p.Running() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have just exited
	<-p.done
}

// Stop sends SIGTERM to the process, waits until it has exited and returns its error.
func (p *Process) Stop() error {
	p.t.Helper()
	if !p.Running() {
		return errors.New("not running")
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, stopTimeout)
	}
}

// waitUntil polls ready until it returns nil. It fails the test if the process exits or the start
// timeout expires.
func (p *Process) waitUntil(what string, ready func() error) {
	p.t.Helper()
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-p.done:
			p.t.Fatalf("%s ended before it was %s: %v", p.name, what, p.err)
		case <-deadline.C:
			p.t.Fatalf("%s was not %s within %s: %v", p.name, what, startTimeout, err)
		case <-tick.C:
		}
	}
}

// Log returns everything that the process has written so far, over all runs.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// logTail returns the last loggedTail bytes of the log.
func (p *Process) logTail() string {
	s := p.Log()
	if len(s) > loggedTail {
		s = "…" + s[len(s)-loggedTail:]
	}
	return s
}

// Eventually polls check until it returns nil. It fails the test if that takes longer than within.
func Eventually(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %s: %v", what, within, err)
		case <-tick.C:
		}
	}
}

// Buffer is a bytes.Buffer that is safe for concurrent use.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns the content so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
