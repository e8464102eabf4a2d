package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
)

// TestRunReportsUsageErrorsAndHelp checks the errors and the help of the NATS server.
func TestRunReportsUsageErrorsAndHelp(t *testing.T) {
	invalidConfig := filepath.Join(t.TempDir(), "bad.conf")
	if err := os.WriteFile(invalidConfig, []byte("port: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	validConfig := filepath.Join(t.TempDir(), "good.conf")
	if err := os.WriteFile(validConfig, []byte("max_payload: 8388608"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args      []string
		help      bool
		want, out string // parts of the error and of the output
	}{
		"help":          {args: []string{"--help"}, help: true, want: "", out: "-addr"},
		"the version":   {args: []string{"--version"}, help: true, want: "", out: "nats-server 2."},
		"valid file":    {args: []string{"-t", "--config=" + validConfig}, help: false, want: "", out: "is valid"},
		"invalid file":  {args: []string{"-t", "--config=" + invalidConfig}, help: false, want: "Parse error", out: ""},
		"unknown level": {args: []string{"--log-level=loud"}, help: false, want: "--log-level", out: ""},
		"unknown flag":  {args: []string{"--nothing"}, help: false, want: "nothing", out: ""},
	} {
		var out bytes.Buffer
		err := Run(t.Context(), test.args, &out)
		switch {
		case test.help != errors.Is(err, flag.ErrHelp):
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		case !strings.Contains(out.String(), test.out):
			t.Errorf("%s: got output %q, want it to contain %q", name, out.String(), test.out)
		}
	}
}

// TestServerStopsWithItsContext checks that the server accepts clients until its context is
// canceled.
func TestServerStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ports := t.TempDir()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, []string{"--addr=127.0.0.1", "--port=-1", "--ports_file_dir=" + ports}, &bytes.Buffer{})
	}()
	url := awaitPort(t, ports, ended)
	c, err := natsclient.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// awaitPort returns the address that a server writes to its folder.
func awaitPort(t *testing.T, dir string, ended <-chan error) string {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			t.Fatalf("the server ended: %v", err)
		case <-tick.C:
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.ports"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			continue
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var ports struct{ Nats []string }
		if json.Unmarshal(data, &ports) == nil && len(ports.Nats) > 0 {
			return ports.Nats[0]
		}
	}
}
