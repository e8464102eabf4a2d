package command_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/deploy/certs/command"
)

func run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = command.Run(command.New("certs"), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// TestCommandCreatesAndChecks checks the output and the exit codes of the default command and of
// check.
func TestCommandCreatesAndChecks(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := run("--dir", dir)
	year := time.Now().Add(365 * 24 * time.Hour).Format(time.DateOnly)
	if code != 0 || errs != "" || !strings.Contains(out, filepath.Join(dir, "admin/admin.crt")+"  expires "+year) {
		t.Fatalf("got exit code %d: %s%s, want 0, the expiry of admin.crt in %s, no errors", code, out, errs, year)
	}
	code, out, _ = run("check", "--dir", dir)
	if code != 0 || !strings.Contains(out, "DAYS LEFT") || !strings.Contains(out, "admin/admin.crt") || strings.Count(out, " ok\n") != strings.Count(out, "\n")-1 {
		t.Errorf("got exit code %d:\n%swant 0 and a table in which each certificate is ok", code, out)
	}
	// Certificates are valid for a year of 8760 hours, so that all of them expire within 9000
	// hours.
	code, out, errs = run("check", "--dir", dir, "--within", "9000h")
	if code != 1 || !strings.Contains(out, "expires soon") || !strings.Contains(errs, "need attention") {
		t.Errorf("got exit code %d:\n%s%swant 1, \"expires soon\" and \"need attention\"", code, out, errs)
	}
	if err := os.RemoveAll(filepath.Join(dir, "ca")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--dir", dir}, {"--dir", dir, "--renew"}} {
		code, out, errs = run(args...)
		if code != 1 || out != "" || !strings.Contains(errs, "--new-ca") {
			t.Errorf("%v: got exit code %d: %s%s, want 1, no output, and an error that names --new-ca", args, code, out, errs)
		}
	}
	code, out, errs = run("--dir", dir, "--new-ca")
	if code != 0 || !strings.Contains(out, "ca/client-ca.crt") {
		t.Errorf("got exit code %d: %s%s, want 0 and ca/client-ca.crt in the output", code, out, errs)
	}
}

// TestUsageErrors checks that an invalid command line ends with exit code 2 and a hint.
func TestUsageErrors(t *testing.T) {
	for _, line := range []string{"--no-such-flag", "argument", "check argument", "check --no-such-flag", "--external-ca=x", "--ca=x", "--rotate-ca=x", "--lifetime=1s", "--ca-lifetime=x"} {
		code, out, errs := run(strings.Fields(line)...)
		if code != 2 || out != "" || !strings.HasPrefix(errs, "certs") || !strings.Contains(errs, "--help") {
			t.Errorf("%s: got exit code %d: %s%s, want 2, no output, and an error of certs that names --help", line, code, out, errs)
		}
	}
}

// TestHelpNamesProgram checks that the help shows the name that New was given.
func TestHelpNamesProgram(t *testing.T) {
	code, out, _ := run("--help")
	if code != 0 || !strings.Contains(out, "certs [flags]") || !strings.Contains(out, "--new-ca") {
		t.Errorf("got exit code %d:\n%swant 0 and the usage with --new-ca", code, out)
	}
}
