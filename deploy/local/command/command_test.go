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

// unreadyService is the script of a service that starts, is never ready, and ends on SIGTERM.
const unreadyService = "#!/bin/sh\ntrap 'exit 0' TERM\necho running\nwhile :; do sleep 0.05; done\n"

// TestClosedTerminalStopsTheSuite checks that SIGHUP stops all services.
func TestClosedTerminalStopsTheSuite(t *testing.T) {
	// The parent process may ignore SIGHUP, like nohup does. Notify undoes this.
	noticed := make(chan os.Signal, 1)
	signal.Notify(noticed, syscall.SIGHUP)
	signal.Stop(noticed)

	self := filepath.Join(t.TempDir(), "patient")
	if err := os.WriteFile(self, []byte(unreadyService), 0o700); err != nil {
		t.Fatal(err)
	}
	out, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code := make(chan int, 1)
	var stderr strings.Builder
	go func() {
		program := command.Program{Name: "up", Self: self, Dir: t.TempDir()}
		code <- program.Main([]string{"--port", "39443", "--timeout", "30s"}, writer, &stderr)
		writer.Close()
	}()
	text, signaled := bufio.NewReader(out), false
	for {
		line, err := text.ReadString('\n')
		if err == io.EOF {
			break
		}
		if !signaled && strings.HasPrefix(line, "apiserver") && strings.Contains(line, "running") {
			signaled = true
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := <-code; got != 0 || !signaled {
		t.Errorf("got exit code %d, want 0 after the hanging service was stopped: %s", got, stderr.String())
	}
}
