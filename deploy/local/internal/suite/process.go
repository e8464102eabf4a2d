package suite

import (
	"context"
	"fmt"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// stopTimeout is how long a service may take to stop by itself.
	stopTimeout = 15 * time.Second
	// outputTimeout is how long to wait for output after the exit, if a child process of the
	// service still holds the pipe.
	outputTimeout = time.Second
)

// process is a running instance of a service.
type process struct {
	instance
	stopRequested atomic.Bool // set before the process is asked to stop: its exit is expected
	cmd           *exec.Cmd
	begin         time.Time
	output        *serviceOutput
	done          chan struct{} // closed when the process has exited
	err           error         // of cmd.Wait; valid once done is closed
}

// startProcess starts an instance in its own process group, so that Ctrl-C reaches it through the
// supervisor, in order. When the process exits without having been asked to stop, it is sent to
// exited.
func startProcess(inst instance, config Config, out *serviceOutput, exited chan<- *process) (*process, error) {
	cmd := exec.Command(config.Self, append([]string{inst.program}, inst.args...)...)
	cmd.Dir = config.Dir
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.WaitDelay = outputTimeout
	cmd.SysProcAttr = processAttributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", inst.name, err)
	}
	proc := &process{instance: inst, cmd: cmd, begin: time.Now(), output: out, done: make(chan struct{})}
	go func() {
		proc.err = cmd.Wait()
		close(proc.done)
		if !proc.stopRequested.Load() {
			exited <- proc
		}
	}()
	return proc, nil
}

// String describes the process for the log.
func (p *process) String() string {
	return fmt.Sprintf("%s (port %d, process %d)", p.name, p.port, p.cmd.Process.Pid)
}

// contextUntilExit returns a context that is canceled when the process exits or ended is closed.
func (p *process) contextUntilExit(ended <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-p.done:
		case <-ended:
		}
	}()
	return ctx
}

// stopOrKill asks the process to stop, and waits until it exits. It kills a process that still runs
// after stopTimeout, or when killNow is canceled. It reports whether it killed the process.
func (p *process) stopOrKill(killNow context.Context) (killed bool) {
	select {
	case <-p.done:
		return false
	default:
	}
	p.stopRequested.Store(true)
	// This fails only if the process has just exited.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
	case <-killNow.Done():
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return true
}

// exitStatus describes how the process exited. It must not be called before done is closed.
func (p *process) exitStatus() string {
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}
