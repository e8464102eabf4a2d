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

// runMain runs the command "certs" with args. It returns the exit code and the output of the command.
func runMain(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = command.Run(command.New("certs"), args, &out, &errs)
	return code, out.String(), errs.String()
}

// TestCommandCreatesAndChecks checks the output and the exit codes of the default command, which
// creates certificates, and of "certs check", which lists when they expire.
func TestCommandCreatesAndChecks(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := runMain("--dir", dir)
	expiry := time.Now().Add(365 * 24 * time.Hour).Format(time.DateOnly)
	wantLine := filepath.Join(dir, "admin/admin.crt") + "  expires " + expiry
	if code != 0 || stderr != "" || !strings.Contains(stdout, wantLine) {
		t.Fatalf("certs: got exit code %d, output:\n%s%swant exit code 0, the line %q, no errors", code, stdout, stderr, wantLine)
	}

	code, stdout, _ = runMain("check", "--dir", dir)
	certificates := strings.Count(stdout, "\n") - 1 // all lines of the table but its header
	if code != 0 || !strings.Contains(stdout, "DAYS LEFT") || !strings.Contains(stdout, "admin/admin.crt") ||
		strings.Count(stdout, " ok\n") != certificates {
		t.Errorf("certs check: got exit code %d, output:\n%swant exit code 0 and a table in which each certificate is ok", code, stdout)
	}

	// Certificates are valid for a year of 8760 hours, so that all of them expire within 9000
	// hours.
	code, stdout, stderr = runMain("check", "--dir", dir, "--within", "9000h")
	if code != 1 || !strings.Contains(stdout, "expires soon") || !strings.Contains(stderr, "need attention") {
		t.Errorf("certs check --within 9000h: got exit code %d, output:\n%s%swant exit code 1, \"expires soon\" and \"need attention\"",
			code, stdout, stderr)
	}

	// Without the keys of the CAs, nothing can be signed until --new-ca creates CAs.
	if err := os.RemoveAll(filepath.Join(dir, "ca")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--dir", dir}, {"--dir", dir, "--renew"}} {
		code, stdout, stderr = runMain(args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, "--new-ca") {
			t.Errorf("certs %v without CAs: got exit code %d, output:\n%s%swant exit code 1, no output, an error that names --new-ca",
				args, code, stdout, stderr)
		}
	}
	code, stdout, stderr = runMain("--dir", dir, "--new-ca")
	if code != 0 || !strings.Contains(stdout, "ca/client-ca.crt") {
		t.Errorf("certs --new-ca: got exit code %d, output:\n%s%swant exit code 0 and ca/client-ca.crt in the output",
			code, stdout, stderr)
	}
}

// TestInvalidCommandLineIsUsageError checks that an invalid command line leads to exit code 2 and a
// hint.
func TestInvalidCommandLineIsUsageError(t *testing.T) {
	for _, line := range []string{
		"--no-such-flag", "argument", "check argument", "check --no-such-flag", "--external-ca=x", "--ca=x", "--rotate-ca=x",
		"--lifetime=1s", "--ca-lifetime=x",
	} {
		code, stdout, stderr := runMain(strings.Fields(line)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "certs") || !strings.Contains(stderr, "--help") {
			t.Errorf("certs %s: got exit code %d, output:\n%s%swant exit code 2, no output, an error of certs that names --help",
				line, code, stdout, stderr)
		}
	}
}

// TestHelpNamesProgram checks that the help shows the program name that was passed to New.
func TestHelpNamesProgram(t *testing.T) {
	code, stdout, _ := runMain("--help")
	if code != 0 || !strings.Contains(stdout, "certs [flags]") || !strings.Contains(stdout, "--new-ca") {
		t.Errorf("certs --help: got exit code %d, output:\n%swant exit code 0 and the usage with --new-ca", code, stdout)
	}
}
