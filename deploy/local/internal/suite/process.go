package suite

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// stopPatience is how long a service may take to stop by itself.
	stopPatience = 15 * time.Second
	// outputPatience is how long output is waited for after the end, when
	// something that the service started still holds its pipe.
	outputPatience = time.Second
)

// process is a running service.
type process struct {
	name   string
	port   int
	cmd    *exec.Cmd
	output *lines
	done   chan struct{} // closed when it has ended
	err    error         // of cmd.Wait; valid once done is closed
}

// start starts a service in a process group of its own, so that Ctrl-C
// reaches it through the supervisor, in order.
func start(s service, c Config, p paths, out *lines, exited chan<- *process) (*process, error) {
	port := c.Port + s.offset
	cmd := exec.Command(filepath.Join(c.BinDir, s.name), s.args(p, port)...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = outputPatience
	cmd.SysProcAttr = processAttributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	proc := &process{name: s.name, port: port, cmd: cmd, output: out, done: make(chan struct{})}
	go func() {
		proc.err = cmd.Wait()
		close(proc.done)
		exited <- proc
	}()
	return proc, nil
}

// stop ends the process, gracefully unless hurry ends or it takes too long,
// and tells whether it had to be killed.
func (p *process) stop(hurry context.Context) (killed bool) {
	select {
	case <-p.done:
		return false
	default:
	}
	// Fails only when the process has ended meanwhile.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
	case <-hurry.Done():
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return true
}

// fate describes how the process ended.
func (p *process) fate() string {
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}
