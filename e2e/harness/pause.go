package harness

import "syscall"

// Pause stops the process without closing its connections, like a machine that stalls.
func (p *Process) Pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
}

// Resume continues a paused process.
func (p *Process) Resume() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

// signal sends a signal to a process that must be running.
func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if !p.Running() {
		p.t.Fatalf("cannot send %[2]v: %[1]s is not running", p.name, s)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v to %s: %v", s, p.name, err)
	}
}
