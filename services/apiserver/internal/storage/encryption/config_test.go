package encryption_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"binnacle/services/apiserver/internal/storage/encryption"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readRecording reads a recording of Kubernetes.
func readRecording(t testing.TB, file string, target any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, target); err != nil {
		t.Fatal(err)
	}
}

func newBuilder(t testing.TB) *encryption.Builder {
	t.Helper()
	m, err := encryption.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return &encryption.Builder{ServerID: "test", Logger: slog.New(slog.DiscardHandler), Metrics: m}
}

// TestConfigErrorsMatchKubernetes compares the errors of invalid configurations with those of Kubernetes.
func TestConfigErrorsMatchKubernetes(t *testing.T) {
	var cases []struct {
		Name   string
		Flags  []string
		Exit   any
		Output []string
		Files  map[string]string
	}
	readRecording(t, "start-failures.json", &cases)
	address := regexp.MustCompile(`\(0x[0-9a-f<>adres]+\)`)
	for _, test := range cases {
		t.Run(test.Name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range test.Files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(content, "<dir>", dir)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file, ok := strings.CutPrefix(test.Flags[0], "--encryption-provider-config=")
			if !ok {
				t.Skip("case of the flag parser")
			}
			// The output of kube-apiserver is a log line such as
			//
			//	E run.go:72] "command failed" err="error while parsing file: ... \"<dir>/encx.yaml\" is empty"
			//
			// Take the error after err= and unescape its quotes: those of the log line and those of
			// an error that quotes another one. The exit code is a number in JSON, so it is a float64.
			want := ""
			if test.Exit == float64(1) {
				_, want, _ = strings.Cut(test.Output[0], `err="`)
				want = strings.TrimSuffix(strings.ReplaceAll(want, `\"`, `"`), `"`)
				want = strings.ReplaceAll(strings.ReplaceAll(want, `\\"`, `"`), `\"`, `"`)
			}
			live, err := encryption.Open(t.Context(), strings.ReplaceAll(file, "<dir>", dir), false, newBuilder(t))
			got := ""
			if err == nil {
				live.Close()
			} else {
				got = strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir, "<dir>"), "(set)", "(0x0)")
			}
			// kube-apiserver prints addresses of values, this server prints (set). Both become (0x0).
			want = address.ReplaceAllString(want, "(0x0)")
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
	if len(cases) < 25 {
		t.Errorf("read %d cases, want at least 25", len(cases))
	}
}

// TestInvalidConfigurationsAreRejected checks the errors of configurations that were not recorded with
// Kubernetes. Cases without a wanted error are valid neighbours of invalid ones. An old plugin is one
// of KMS v1, a new one of KMS v2. A case whose name ends in "reloaded" parses the file as a reload
// does. No error may contain a key.
func TestInvalidConfigurationsAreRejected(t *testing.T) {
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
	const old = "{kms: {name: 'a:b', endpoint: 'unix:///x'}}"
	for _, test := range []struct{ name, resources, providers, want string }{
		{name: "an old plugin with a colon", resources: "[secrets]", providers: "[" + old + "]"},
		{
			name:      "an invalid endpoint",
			resources: "[secrets]",
			providers: "[{kms: {name: a, endpoint: 'unix:///%zz'}}]",
			want:      "invalid endpoint for kms provider, error: parse",
		},
		{
			name:      "two new plugins of one name",
			resources: "[secrets]",
			providers: "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x'}}, {kms: {apiVersion: v2, name: a, endpoint: 'unix:///y'}}]",
			want:      "duplicate KMS provider name a",
		},
		{name: "two old plugins of one name", resources: "[secrets]", providers: "[" + old + ", " + old + "]"},
		{
			name:      "two old plugins of one name, reloaded",
			resources: "[secrets]",
			providers: "[" + old + ", " + old + "]",
			want:      "duplicate KMS provider name a:b",
		},
		{
			name:      "all resources and more",
			resources: "['*.*', secrets]",
			providers: "[{identity: {}}]",
			want:      "overlapping resources",
		},
		{name: "all resources", resources: "['*.*']", providers: "[{identity: {}}]"},
		{name: "core and all of a group", resources: "['*.', '*.apps']", providers: "[{identity: {}}]"},
		{
			name:      "a resource of all groups",
			resources: "['secrets.*']",
			providers: "[{identity: {}}]",
			want:      "encrypting the same resource across groups is not supported",
		},
		{
			name:      "a single star",
			resources: "['*', secrets]",
			providers: "[{identity: {}}]",
			want:      "parsing file: resources[0].resources[0]: Invalid value: \"*\": use '*.'",
		},
		{
			name:      "a resource without API",
			resources: "[serviceipallocations]",
			providers: "[{identity: {}}]",
			want:      "resources which do not have REST API/s cannot be encrypted",
		},
		{
			name:      "a plugin without a name",
			resources: "[secrets]",
			providers: "[{kms: {apiVersion: v2, endpoint: 'unix:///x'}}]",
			want:      "name is a mandatory field for a provider",
		},
		{
			name:      "a plugin without an endpoint",
			resources: "[secrets]",
			providers: "[{kms: {apiVersion: v2, name: a}}]",
			want:      "endpoint is a mandatory field for a kms",
		},
		{
			name:      "an old plugin without a cache",
			resources: "[secrets]",
			providers: "[{kms: {name: a, cachesize: 0, endpoint: 'unix:///x'}}]",
			want:      "cachesize should be a positive value, or negative to disable",
		},
		{
			name:      "a key given twice",
			resources: "[secrets]",
			providers: "[{aescbc: {keys: [{name: a, name: b, secret: " + key + "}]}}]",
			want:      "strict decoding error",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := encryption.Parse("f",
				[]byte(head+"- resources: "+test.resources+"\n  providers: "+test.providers+"\n"),
				strings.HasSuffix(test.name, "reloaded"))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), key) {
				t.Errorf("error contains a key: %v", err)
			}
		})
	}
}

// TestOldKindIsAcceptedInV1Only checks that the kind EncryptionConfig, which early documentation used, is
// accepted in the version v1 and in no other one.
func TestOldKindIsAcceptedInV1Only(t *testing.T) {
	text := strings.Replace(rulesYAML(ruleYAML("secrets", identityTransformer)), "EncryptionConfiguration", "EncryptionConfig", 1)
	for apiVersion, ok := range map[string]bool{"v1": true, "apiserver.config.k8s.io/v1": false, "v2": false} {
		_, err := encryption.Parse("f", []byte(strings.Replace(text, "apiserver.config.k8s.io/v1", apiVersion, 1)), false)
		if (err == nil) != ok {
			t.Errorf("%s: got %v, want success %t", apiVersion, err, ok)
		}
	}
}
