package harness

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// kubectlTimeout bounds a run of kubectl.
const kubectlTimeout = 60 * time.Second

// CLI runs kubectl against a server. It is safe for concurrent use.
type CLI struct {
	path, kubeconfig, home, namespace string
	env                               []string
}

// Result is the output of one run of kubectl.
type Result struct {
	Stdout, Stderr string
	Err            error // the exit error, if the exit code was not 0
}

// NewCLI returns a kubectl with the server's administrator as its user.
func NewCLI(t testing.TB, s *Server) *CLI {
	t.Helper()
	return CLIOf(t, s.Kubeconfig(s.Admin))
}

// CLIOf returns a kubectl with the given kubeconfig.
func CLIOf(t testing.TB, kubeconfig string) *CLI {
	t.Helper()
	return &CLI{path: Binary(t, Kubectl), kubeconfig: kubeconfig, home: t.TempDir()}
}

// WithNamespace returns a copy that uses a namespace.
func (c *CLI) WithNamespace(namespace string) *CLI {
	d := *c
	d.namespace = namespace
	return &d
}

// WithEnv returns a copy with further environment variables.
func (c *CLI) WithEnv(env ...string) *CLI {
	d := *c
	d.env = append(append([]string(nil), c.env...), env...)
	return &d
}

// Command prepares a run for callers that need more than its result.
func (c *CLI) Command(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	if c.namespace != "" {
		args = append([]string{"--namespace=" + c.namespace}, args...)
	}
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+c.home), c.env...)
	cmd.SysProcAttr = childAttributes()
	return cmd
}

// Execute runs kubectl with stdin and returns its output and error.
func (c *CLI) Execute(t testing.TB, stdin string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubectlTimeout)
	defer cancel()
	cmd := c.Command(ctx, stdin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	err := cmd.Run()
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Err: err}
}

// Run runs kubectl, fails the test if kubectl fails, and returns its output.
func (c *CLI) Run(t testing.TB, args ...string) string {
	t.Helper()
	return c.RunWith(t, "", args...)
}

// RunWith does the same as Run and gives kubectl stdin as its input.
func (c *CLI) RunWith(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	r := c.Execute(t, stdin, args...)
	if r.Err != nil {
		t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), r.Err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}
