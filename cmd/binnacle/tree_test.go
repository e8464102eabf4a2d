package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// runCommand runs a command and returns its exit code and output.
func runCommand(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var stderr bytes.Buffer
	code = newTree("binnacle", file, &stderr).run(args)
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text), stderr.String()
}

// TestCommandLineDecidesExitCodeAndOutput checks the exit code and the output for command lines.
func TestCommandLineDecidesExitCodeAndOutput(t *testing.T) {
	for line, test := range map[string]struct {
		code int
		want []string // parts of the output
	}{
		"--help": {code: 0,
			want: []string{"up ", "ha ", "apiserver ", "authn-webhook ", "authz-webhook ", "tokencleaner ",
				"bootstrapsigner ", "controllers ", "console ", "etcd ", "nats-server ", "completion "}},
		"--version":          {code: 0, want: []string{"binnacle version devel"}},
		"up --help":          {code: 0, want: []string{"binnacle up [flags]", "--port", "--dir"}},
		"ha --help":          {code: 0, want: []string{"three API servers"}},
		"nats-server --help": {code: 0, want: []string{"-addr"}},
		"etcd --help":        {code: 0, want: []string{"-initial-cluster-token"}},
		"up --no-build":      {code: 2, want: []string{"unknown flag: --no-build", "binnacle up --help"}},
		"up more":            {code: 2, want: []string{`unknown argument "more"`}},
		"etcd --nothing":     {code: 1, want: []string{"binnacle etcd: "}},
		"nothing":            {code: 2, want: []string{`unknown command "nothing"`, "binnacle --help"}},

		"version":                       {code: 0, want: []string{"binnacle devel, Kubernetes v1.33."}},
		"version more":                  {code: 2, want: []string{"binnacle version: ", "binnacle version --help"}},
		"certs --help":                  {code: 0, want: []string{"binnacle certs [flags]", "--new-ca", "check"}},
		"certs --nothing":               {code: 2, want: []string{"binnacle certs: unknown flag", "binnacle certs --help"}},
		"certs check --dir /none":       {code: 1, want: []string{"missing", "need attention"}},
		"kubeconfig --dir /none":        {code: 1, want: []string{"binnacle kubeconfig: ", "/none/admin/admin.crt"}},
		"kubeconfig --server localhost": {code: 2, want: []string{"--server", "https"}},
	} {
		code, out, errs := runCommand(t, strings.Fields(line)...)
		if code != test.code {
			t.Errorf("%s: got exit code %d, want %d", line, code, test.code)
		}
		for _, w := range test.want {
			if !strings.Contains(out+errs, w) {
				t.Errorf("%s: got output\n%s%s\nwant %q in it", line, out, errs, w)
			}
		}
	}
}

// TestCompletionScriptCallsBinary checks that shells get a script that calls the binary for names
// and flags.
func TestCompletionScriptCallsBinary(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "__start_binnacle",
		"zsh":  "#compdef binnacle",
		"fish": "complete -c binnacle",
	} {
		if code, out, _ := runCommand(t, "completion", shell); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: got exit code %d: %.200s, want 0 and %q", shell, code, out, want)
		}
	}
	for _, test := range []struct {
		words     []string
		want, not string
	}{
		{words: []string{""}, want: "snapshot\t", not: "restore\t"},
		{words: []string{"snapshot", ""}, want: "restore\t", not: "--"},
		{words: []string{"snapshot", "restore", "--data"}, want: "--data-dir\t", not: "--from"},
		{words: []string{"certs", "--new"}, want: "--new-ca\t", not: "--renew"},
		{words: []string{"kubeconfig", "--ser"}, want: "--server", not: "--dir"},
		{words: []string{"auth"}, want: "authz-webhook\t", not: "apiserver"},
		{words: []string{"apiserver", ""}, want: "snapshot\t", not: "--"},
		{words: []string{"apiserver", "--etcd-ser"}, want: "--etcd-servers\t", not: "--etcd-prefix"},
		{words: []string{"apiserver", "snapshot", "--end"}, want: "--endpoint\t", not: "--endpoint-reconciler"},
		{words: []string{"up", "--"}, want: "--port\t", not: "--no-build"},
		{words: []string{"etcd", "--initial-cluster-t"}, want: "--initial-cluster-token\t", not: "--name"},
		{words: []string{"tokencleaner", "--kubeconfig="}, want: "", not: "--"},
	} {
		_, out, _ := runCommand(t, append([]string{"__complete"}, test.words...)...)
		if !strings.Contains(out, test.want) || strings.Contains(out, test.not) {
			t.Errorf("%q: want %q and not %q:\n%s", test.words, test.want, test.not, out)
		}
	}
}

// TestLinkNamesSelectTheCommand checks which names of links to the binary select a command.
func TestLinkNamesSelectTheCommand(t *testing.T) {
	for file, want := range map[string]string{
		"binnacle":       "",
		"binnacle-v1":    "",
		"kube-apiserver": "apiserver",
		"apiserver":      "apiserver",
		"etcd":           "etcd",
		"nats-server":    "nats-server",
		"tokencleaner":   "tokencleaner",
		"up":             "",
		"kubectl":        "",
	} {
		if got := commandForLink(file); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

// TestKubeconfigHoldsCertificates checks that the printed kubeconfig is complete without other
// files.
func TestKubeconfigHoldsCertificates(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := runCommand(t, "certs", "--dir", dir); code != 0 {
		t.Fatal(errs)
	}
	code, out, errs := runCommand(t, "kubeconfig", "--dir", dir, "--server", "https://api.example.org:6443")
	if code != 0 {
		t.Fatal(errs)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(out))
	if err != nil || config.Host != "https://api.example.org:6443" || len(config.CAData) == 0 {
		t.Fatalf("got %v, %v", config, err)
	}
	if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		t.Error(err)
	}
}
