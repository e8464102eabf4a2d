package command_test

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"binnacle/deploy/local/command"
)

// patient is the script of a service that starts, is never ready, and ends on SIGTERM.
const patient = "#!/bin/sh\ntrap 'exit 0' TERM\necho running\nwhile :; do sleep 0.05; done\n"

// TestClosedTerminalStopsTheSuite checks that SIGHUP stops all services.
func TestClosedTerminalStopsTheSuite(t *testing.T) {
	// The parent process may ignore SIGHUP, like nohup does. Notify undoes this.
	noticed := make(chan os.Signal, 1)
	signal.Notify(noticed, syscall.SIGHUP)
	signal.Stop(noticed)

	self := filepath.Join(t.TempDir(), "patient")
	if err := os.WriteFile(self, []byte(patient), 0o700); err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code := make(chan int, 1)
	var errs strings.Builder
	go func() {
		p := command.Program{Name: "up", Self: self, Dir: t.TempDir()}
		code <- p.Main([]string{"--port", "39443", "--timeout", "30s"}, in, &errs)
		in.Close()
	}()
	text, hung := bufio.NewReader(out), false
	for {
		line, err := text.ReadString('\n')
		if err == io.EOF {
			break
		}
		if !hung && strings.HasPrefix(line, "apiserver") && strings.Contains(line, "running") {
			hung = true
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := <-code; got != 0 || !hung {
		t.Errorf("got exit code %d, want 0 after the hanging service was stopped: %s", got, errs.String())
	}
}
