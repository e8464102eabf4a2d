package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout bounds the time that a process has to exit after SIGTERM.
const stopTimeout = 30 * time.Second

// process is a program that runs in the background.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited
}

// startProcess starts a program that logs to a file below dir. If it exits before stop, ended
// receives the reason.
func startProcess(dir, name, path string, args []string, ended func(error)) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = dir
	// An interrupt of the terminal reaches this command only, which stops the programs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		close(p.done)
		ended(fmt.Errorf("%s has exited (%v), see %s", name, err, log.Name()))
	}()
	return p, nil
}

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// pollInterval is the interval at which eventually tries again.
const pollInterval = 200 * time.Millisecond

// eventually calls try until it returns nil, and fails with its error after the timeout.
func eventually(ctx context.Context, timeout time.Duration, what string, try func(context.Context) error) error {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := try(waiting)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-waiting.Done():
			return fmt.Errorf("%s: not within %v: %w", what, timeout, err)
		case <-tick.C:
		}
	}
}
