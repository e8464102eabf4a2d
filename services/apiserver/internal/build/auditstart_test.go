package build

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/server/overload"
)

// TestInvalidAuditFlagsFailStart replays policies and flags that prevent the start.
func TestInvalidAuditFlagsFailStart(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "audit", "8-start-failures.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name          string
		Flags, Output []string
		Files         map[string]string
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile(`err=("(?:[^"\\]|\\.)*")`)
	for _, test := range all {
		t.Run(test.Name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.Files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"--cert-dir", dir, "--data-dir", dir}
			for _, f := range test.Flags {
				args = append(args, strings.ReplaceAll(f, "<dir>", dir))
			}
			var stderr bytes.Buffer
			o := config.NewOptions()
			code := options.Main(t.Context(), config.Name, config.Short, o, func(ctx context.Context, log *slog.Logger) error {
				b := &base{limits: o.Bounds, log: log, metrics: prometheus.NewRegistry(), lifetime: &lifecycle{}}
				defer b.lifetime.close()
				_, err := newAuditing(b, &o.Audit, overload.PrincipalLimiter{})
				return err
			}, args, &stderr, &stderr)
			if len(test.Output) == 0 {
				if code != options.ExitOK {
					t.Errorf("got exit code %d: %s, want success", code, &stderr)
				}
				return
			}
			if code == options.ExitOK {
				t.Error("got a server that starts, want a failure")
			}
			for _, want := range messages(t, quoted.FindStringSubmatch(test.Output[0])[1], dir) {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("\n  is %s\nwant %s", &stderr, want)
				}
			}
		})
	}
}

// messages returns the errors of a line. Several errors are in brackets.
func messages(t *testing.T, quoted, dir string) []string {
	t.Helper()
	text, err := strconv.Unquote(quoted)
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "<dir>", dir)
	if strings.HasPrefix(text, "[") {
		return regexp.MustCompile(`, (?:--|invalid)`).Split(strings.Trim(text, "[]"), -1)
	}
	return []string{text}
}

// TestAuditWebhookReceivesEvents checks that queued events are delivered at the end, and that the policy is
// reloaded.
func TestAuditWebhookReceivesEvents(t *testing.T) {
	t.Parallel()
	hook := newPosted(t)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "audit.kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	text, _ := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []any{
			map[string]any{"name": "c", "cluster": map[string]any{"server": hook.URL + "/audit", "certificate-authority-data": ca}},
		},
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{"cluster": "c"}}},
	})
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var want recorded
	t.Run("server", func(t *testing.T) {
		fixture := startAudited(t, func(options *config.Options) {
			options.Audit.Webhook.ConfigFile = kubeconfig
			options.Audit.Webhook.Batch.MaxWait = 1e12
			options.Audit.Webhook.Batch.MaxSize = 1000
		})
		want = recordings(t, "1-verbs.json")[3]
		if _, id := fixture.ask(&want); id == "" {
			t.Error("got a response without Audit-Id, want one with it")
		}
	})
	// The server has ended; nothing was posted before.
	var list struct {
		Kind, APIVersion string
		Items            []json.RawMessage
	}
	body := hook.next(t)
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v in %.300s", err, body)
	}
	const begin = `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{"level":`
	if !strings.HasPrefix(body, begin) {
		t.Fatalf("got body %.300s, want it to begin with %s", body, begin)
	}
	got := slices.DeleteFunc(list.Items, func(e json.RawMessage) bool { return !bytes.Contains(e, []byte(`"recorder"`)) })
	if len(got) != len(want.Lines) {
		t.Fatalf("got %d events, want %d", len(got), len(want.Lines))
	}
}

// TestAuditPolicyIsReloaded checks that a running server uses a changed policy and ignores an
// invalid one.
func TestAuditPolicyIsReloaded(t *testing.T) {
	t.Parallel()
	var file string
	fixture := startAudited(t, func(options *config.Options) { file = options.Audit.PolicyFile })
	write := func(rules string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new",
			[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+rules), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	count := func(status string) bool {
		return strings.Contains(string(fixture.get("/metrics").body), fmt.Sprintf("binnacle_audit_policy_reloads_total{status=%q} 1", status))
	}
	write("rules: [{level: Odd}]\n")
	fixture.waitUntil("rejected", func() bool { return count("failure") })
	get := recordings(t, "3-policy-rules.json")[16] // /version
	fixture.replay(&get, "")
	write("rules: [{level: None}]\n")
	fixture.waitUntil("followed", func() bool { return count("success") })
	_, id := fixture.ask(&get)
	if lines := fixture.logged()[id]; len(lines) != 0 {
		t.Errorf("level None: got events %s, want none", lines)
	}
}

// TestAuditMetadataContainsNoSecrets covers tokens in bodies and headers, and issued tokens.
func TestAuditMetadataContainsNoSecrets(t *testing.T) {
	t.Parallel()
	fixture := startAudited(t, func(options *config.Options) {
		if err := os.WriteFile(options.Audit.PolicyFile,
			[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	const secret = "s3cr3t"
	kept := base64.StdEncoding.EncodeToString([]byte(secret))
	fixture.mustSend(201, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"`+secret+`"}}`)
	fixture.mustSend(201, "POST", "/api/v1/namespaces/a/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"`+secret+`"}}`)
	fixture.mustSend(422, "POST", "/api/v1/namespaces/a/secrets",
		`{"metadata":{"name":"t"},"type":"kubernetes.io/tls","stringData":{"k":"`+secret+`"}}`)
	fixture.mustSend(200, "PATCH", "/api/v1/namespaces/a/secrets/s", `{"stringData":{"l":"`+secret+`"}}`, "Content-Type", mergePatch)
	for media, patch := range map[string]string{
		mergePatch:                               `{"data":{"m":"!"}}`,
		"application/json-patch+json":            `[{"op":"add","path":"/data/m","value":"!"}]`,
		"application/strategic-merge-patch+json": `{"data":"` + secret + `"}`,
	} { // responses contain the whole secret
		response := fixture.mustSend(422, "PATCH", "/api/v1/namespaces/a/secrets/s", patch, "Content-Type", media)
		if text := fmt.Sprint(response.field("message")); !strings.Contains(text, secret) && !strings.Contains(text, kept) {
			t.Errorf("%s: got message %s, want the rejected content in it", media, text)
		}
	}
	fixture.mustSend(200, "GET", "/api/v1/namespaces/a/secrets/s", "")
	made := fixture.mustSend(201, "POST", "/api/v1/namespaces/a/serviceaccounts/default/token", `{"spec":{}}`)
	token := fmt.Sprint(made.field("status", "token"))
	fixture.bearer().mustSend(200, "GET", "/version", "", "Authorization", "Bearer "+token)
	fixture.bearer().mustSend(401, "GET", "/version", "", "Authorization", "Bearer "+secret)
	text := fixture.read()
	if n := strings.Count(text, "\n"); n < 15 {
		t.Fatalf("got %d lines of events, want at least 15", n)
	}
	if n := strings.Count(text, `"message":" \"\" is invalid: patch: Invalid value: \"\u003ccontents redacted\u003e\": `); n != 3 {
		t.Errorf("got %d events with redacted contents, want those of 3 rejected patches", n)
	}
	for _, s := range []string{secret, kept, token, token[strings.LastIndex(token, ".")+1:], "requestObject", "responseObject"} {
		if strings.Contains(text, s) {
			t.Errorf("the audit log contains %q, want it redacted", s)
		}
	}
}
