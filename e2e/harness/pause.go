package harness

import "syscall"

// Pause stops the process from running, as a machine that stalls would:
// connections stay, and nothing answers.
func (p *Process) Pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if !p.Running() {
		p.t.Fatalf("%s is sent %v and does not run", p.name, s)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v to %s: %v", s, p.name, err)
	}
}
