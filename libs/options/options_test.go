package options_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"binnacle/libs/options"
)

type testOptions struct {
	port    int
	delay   time.Duration
	modes   []string
	issuers []string
	gates   map[string]string
	secure  bool

	completeErr error
	completed   bool
}

func (o *testOptions) AddFlags(sections *options.Sections) {
	serving := sections.Set("secure serving")
	serving.IntVar(&o.port, "secure-port", 6443, "the port")
	serving.DurationVar(&o.delay, "shutdown-delay-duration", 0, "the delay")
	serving.BoolVar(&o.secure, "secure", true, "secure or not")
	auth := sections.Set("authorization")
	auth.StringSliceVar(&o.modes, "authorization-mode", []string{"AlwaysAllow"}, "the modes")
	auth.StringArrayVar(&o.issuers, "service-account-issuer", nil, "the issuers")
	auth.StringToStringVar(&o.gates, "runtime-config", nil, "the gates")
}

func (o *testOptions) Complete() error { o.completed = true; return o.completeErr }

func (o *testOptions) Validate() []error {
	if o.port < 0 {
		return []error{fmt.Errorf("--secure-port %d is negative", o.port), errors.New("ports are positive")}
	}
	return nil
}

type result struct {
	code           int
	stdout, stderr string
	ran            bool
}

func runMain(t *testing.T, o *testOptions, runErr error, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	var r result
	r.code = options.Main(t.Context(), "testd", "A test daemon.", o, func(_ context.Context, log *slog.Logger) error {
		r.ran = true
		log.Info("running")
		log.Debug("details")
		return runErr
	}, args, &out, &errOut)
	r.stdout, r.stderr = out.String(), errOut.String()
	return r
}

// TestCommandLineDecidesExitCodeAndOutput checks the exit code and the output for command lines.
func TestCommandLineDecidesExitCodeAndOutput(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		runErr error
		code   int
		ran    bool
		stdout []string
		stderr []string
	}{
		{name: "runs", code: 0, ran: true, stderr: []string{"level=INFO msg=running"}},
		{name: "underscores", args: []string{"--secure_port=1"}, code: 0, ran: true},
		{name: "verbosity 2", args: []string{"-v", "2"}, code: 0, ran: true, stderr: []string{"level=DEBUG msg=details"}},
		{name: "JSON log", args: []string{"--logging-format=json"}, code: 0, ran: true, stderr: []string{`"msg":"running"`}},
		{name: "help", args: []string{"--help"}, code: 0, stdout: []string{
			"A test daemon.\n", "Secure serving flags:\n\n", "--secure-port int", "Authorization flags:\n\n",
			"Logs flags:", "Global flags:"}},
		{name: "version", args: []string{"--version"}, code: 0, stdout: []string{"testd v1.33."}},
		{
			name:   "raw version",
			args:   []string{"--version=raw"},
			code:   0,
			stdout: []string{"version.Info{Major:\"1\", Minor:\"33\""},
		},
		{name: "no version", args: []string{"--version=false"}, code: 0, ran: true},
		{name: "another version", args: []string{"--version=v1.32.0"}, code: 2, stderr: []string{"the version is always"}},
		{name: "unknown flag", args: []string{"--no-such"}, code: 2, stderr: []string{"unknown flag: --no-such", "testd --help"}},
		{name: "unexpected argument", args: []string{"extra"}, code: 2, stderr: []string{`"extra"`}},
		{name: "value of another type", args: []string{"--secure-port=x"}, code: 2, stderr: []string{"--secure-port"}},
		{name: "value rejected by Validate", args: []string{"--secure-port=-1"}, code: 2, stderr: []string{"-1 is negative", "ports are positive"}},
		{name: "negative verbosity", args: []string{"--v=-1"}, code: 2, stderr: []string{"--v must not be negative"}},
		{name: "unknown log format", args: []string{"--logging-format=xml"}, code: 2, stderr: []string{"--logging-format"}},
		{name: "failed run", runErr: errors.New("no disk"), code: 1, ran: true, stderr: []string{"testd: no disk"}},
		{name: "missing config", args: []string{"--config=/no/such"}, code: 2, stderr: []string{"/no/such"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := runMain(t, &testOptions{}, tt.runErr, tt.args...)
			if result.code != tt.code || result.ran != tt.ran {
				t.Errorf("code %d, ran %v; want %d, %v\n%s%s", result.code, result.ran, tt.code, tt.ran, result.stdout, result.stderr)
			}
			for _, want := range tt.stdout {
				if !strings.Contains(result.stdout, want) {
					t.Errorf("stdout lacks %q:\n%s", want, result.stdout)
				}
			}
			for _, want := range tt.stderr {
				if !strings.Contains(result.stderr, want) {
					t.Errorf("stderr lacks %q:\n%s", want, result.stderr)
				}
			}
		})
	}
}

// TestSectionsKeepTheirOrder checks that the help lists sections in the order in which they were
// added.
func TestSectionsKeepTheirOrder(t *testing.T) {
	result := runMain(t, &testOptions{}, nil, "-h")
	serving, auth := strings.Index(result.stdout, "Secure serving flags"), strings.Index(result.stdout, "Authorization flags")
	if serving < 0 || auth < serving {
		t.Errorf("got help\n%s\nwant the section of serving before that of authentication", result.stdout)
	}
}

// TestCompleteErrorIsUsageError checks that an error of Complete ends the program with ExitUsage.
func TestCompleteErrorIsUsageError(t *testing.T) {
	failing := &testOptions{completeErr: errors.New("no such host")}
	if result := runMain(t, failing, nil); result.code != options.ExitUsage || result.ran || !strings.Contains(result.stderr, "no such host") {
		t.Errorf("got %+v, want a usage error about no such host", result)
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCommandLineOverridesConfigFile checks the values of all kinds of flags in a file, and that
// the command line takes precedence.
func TestCommandLineOverridesConfigFile(t *testing.T) {
	path := writeConfig(t, `
secure-port: 7443
shutdown-delay-duration: 3s
secure: false
authorization-mode: [Node, RBAC]
service-account-issuer:
- https://a,b
- https://c
runtime-config:
  api/all: true
  batch/v1: "false"
`)
	parsed := &testOptions{}
	if result := runMain(t, parsed, nil, "--config", path, "--secure-port=1"); result.code != 0 {
		t.Fatal(result.stderr)
	}
	switch {
	case parsed.port != 1:
		t.Errorf("got port %d, want 1, that of the command line", parsed.port)
	case parsed.delay != 3*time.Second, parsed.secure, !parsed.completed:
		t.Errorf("got options %+v, want delay 3s, not secure, completed", parsed)
	case !slices.Equal(parsed.modes, []string{"Node", "RBAC"}), !slices.Equal(parsed.issuers, []string{"https://a,b", "https://c"}):
		t.Errorf("got options %+v, want the modes Node and RBAC, and the issuers https://a,b and https://c", parsed)
	case parsed.gates["api/all"] != "true" || parsed.gates["batch/v1"] != "false":
		t.Errorf("got gates %v, want api/all=true, batch/v1=false", parsed.gates)
	}
}

// TestConfigFileErrorsNameTheirLine checks the errors for invalid files.
func TestConfigFileErrorsNameTheirLine(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{name: "unknown key", text: "secure-port: 1\n\nno-such: 2\n", want: `config.yaml:3: unknown key "no-such"`},
		{name: "all unknown keys", text: "a: 1\nb: 2\n", want: "config.yaml:2: unknown key \"b\""},
		{name: "config itself", text: "config: other.yaml\n", want: "config.yaml:1: unknown key"},
		{name: "help", text: "help: true\n", want: "config.yaml:1: unknown key"},
		{
			name: "key set twice",
			text: "secure-port: 1\nsecure-port: 2\n",
			want: `config.yaml:2: key "secure-port" was already set on line 1`,
		},
		{name: "wrong type", text: "secure-port: many\n", want: "config.yaml:1: secure-port: "},
		{name: "key without a value", text: "secure-port:\n", want: "config.yaml:1: secure-port: line 1: want a plain value"},
		{name: "nested", text: "authorization-mode: [[a]]\n", want: "want a plain value"},
		{name: "not a mapping", text: "- a\n", want: "config.yaml:1: want a mapping"},
		{name: "not YAML", text: "a: [\n", want: "config.yaml: yaml:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := runMain(t, &testOptions{}, nil, "--config", writeConfig(t, tt.text))
			if result.code != options.ExitUsage || result.ran || !strings.Contains(result.stderr, tt.want) {
				t.Errorf("code %d, want %q in:\n%s", result.code, tt.want, result.stderr)
			}
		})
	}
}

// TestEmptyConfigFileKeepsDefaults checks that a file without keys changes nothing.
func TestEmptyConfigFileKeepsDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n"} {
		parsed := &testOptions{}
		if result := runMain(t, parsed, nil, "--config", writeConfig(t, text)); result.code != 0 || parsed.port != 6443 {
			t.Errorf("%q: got %+v, options %+v, want exit code 0, port 6443", text, result, parsed)
		}
	}
}

// FuzzConfigFile checks that the service runs exactly if the file is accepted.
func FuzzConfigFile(f *testing.F) {
	f.Add("secure-port: 1\n")
	f.Add("authorization-mode: [a, b]\nruntime-config: {a: b}\n")
	f.Add("a: &x [*x]\n")
	f.Add("? [a]\n: b\n")
	f.Fuzz(func(t *testing.T, text string) {
		var out, errOut bytes.Buffer
		ran := false
		code := options.Main(t.Context(), "testd", "", &testOptions{}, func(context.Context, *slog.Logger) error {
			ran = true
			return nil
		}, []string{"--config", writeConfig(t, text)}, &out, &errOut)
		if (code == options.ExitOK) != ran {
			t.Errorf("got exit code %d, ran: %t, want success exactly if it ran", code, ran)
		}
	})
}

// TestVerbositySelectsLogLevel checks the log level for values of -v.
func TestVerbositySelectsLogLevel(t *testing.T) {
	for verbosity, want := range map[int]slog.Level{-1: slog.LevelInfo, 0: slog.LevelInfo, 1: slog.LevelDebug, 4: slog.LevelDebug - 3} {
		if got := options.Level(verbosity); got != want {
			t.Errorf("Level(%d) = %v, want %v", verbosity, got, want)
		}
	}
}

// TestFirstArgumentSelectsSubcommand checks that the first argument selects a subcommand, and that
// flags of other commands are rejected.
func TestFirstArgumentSelectsSubcommand(t *testing.T) {
	service, saveOptions := &testOptions{}, &testOptions{}
	runMain := func(args ...string) (ran string, code int, out, errOut bytes.Buffer) {
		runAs := func(name string) options.RunFunc {
			return func(context.Context, *slog.Logger) error { ran = name; return nil }
		}
		code = options.Main(t.Context(), "testd", "A test daemon.", service, runAs("service"), args, &out, &errOut,
			options.Command{Name: "save", Short: "Save it.", Options: saveOptions, Run: runAs("save")})
		return ran, code, out, errOut
	}
	if ran, code, _, _ := runMain("save", "--secure-port=7"); ran != "save" || code != options.ExitOK ||
		saveOptions.port != 7 || service.completed {
		t.Errorf("got %q run, exit code %d, options %+v, want save with port 7", ran, code, saveOptions)
	}
	if ran, code, _, _ := runMain(); ran != "service" || code != options.ExitOK {
		t.Errorf("got %q run, exit code %d, want the service and %d", ran, code, options.ExitOK)
	}
	if ran, code, _, errOut := runMain("", "--secure-port=8", ""); ran != "service" || code != options.ExitOK {
		t.Errorf("got %q run, exit code %d: %s, want the service and %d", ran, code, errOut.String(), options.ExitOK)
	}
	if ran, code, _, errOut := runMain("other"); ran != "" || code != options.ExitUsage ||
		!strings.Contains(errOut.String(), "unknown command") {
		t.Errorf("got %q run, exit code %d: %s, want nothing, %d and %q", ran, code, errOut.String(),
			options.ExitUsage, "unknown command")
	}
	if _, _, out, _ := runMain("--help"); !strings.Contains(out.String(), "testd save [flags]    Save it.") {
		t.Errorf("got help %s, want it to contain %q", out.String(), "testd save [flags]    Save it.")
	}
	if _, _, out, _ := runMain("save", "--help"); !strings.Contains(out.String(), "Save it.\n\nUsage:\n  testd save [flags]\n") {
		t.Errorf("got help of the command %s, want its description and usage", out.String())
	}
}

// TestLogLevelChangesWhileRunning checks that a running service can change its log level, and that
// durations in JSON have a unit.
func TestLogLevelChangesWhileRunning(t *testing.T) {
	var stderr bytes.Buffer
	options.Main(t.Context(), "testd", "A test daemon.", &testOptions{}, func(_ context.Context, log *slog.Logger) error {
		derived := log.With("part", "x")
		derived.Debug("before")
		options.SetVerbosity(log, 1)
		derived.Debug("during", "took", 1500*time.Millisecond)
		options.SetVerbosity(derived, 0)
		log.Debug("after")
		return nil
	}, []string{"--logging-format=json"}, io.Discard, &stderr)
	if text := stderr.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text,
		`"msg":"during","part":"x","took":"1.5s"`) {
		t.Errorf("got log\n%s\nwant one line with message, part and duration", text)
	}
}

// TestLongLogTextsAreTruncated checks that long texts and errors are truncated in both log formats.
func TestLongLogTextsAreTruncated(t *testing.T) {
	long := strings.Repeat("é", 500_000)
	for _, format := range []string{"text", "json"} {
		var stderr bytes.Buffer
		options.Main(t.Context(), "testd", "A test daemon.", &testOptions{}, func(_ context.Context, log *slog.Logger) error {
			log.With("path", long).Error("failed", "error", errors.New(long), "text", long)
			return nil
		}, []string{"--logging-format=" + format}, io.Discard, &stderr)
		if text := stderr.String(); len(text) > 30_000 || strings.Count(text, "é … (991808 more bytes)") != 3 {
			t.Errorf("%s: got %d bytes that end in %q, want at most 30000 with 3 shortened values", format, len(text),
				text[max(0, len(text)-100):])
		}
	}
}
