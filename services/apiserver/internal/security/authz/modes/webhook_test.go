package modes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
	"binnacle/services/apiserver/internal/security/authz/modes"
)

// anyCondition accepts every condition.
type anyCondition struct{}

func (anyCondition) Check(string) error { return nil }

// TestWebhookSettingsAreEffective checks that the settings of a webhook in the file are effective.
func TestWebhookSettingsAreEffective(t *testing.T) {
	kubeconfig := startWebhook(t, func(user string) bool { return user == "alice" })
	dead := filepath.Join(t.TempDir(), "dead")
	raw, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	for i, l := range lines {
		if before, _, ok := strings.Cut(l, "server: "); ok {
			lines[i] = before + "server: https://127.0.0.1:1"
		}
	}
	if err := os.WriteFile(dead, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	const shorter = "timeout: 50ms"
	for name, test := range map[string]struct {
		file   string
		user   string
		want   authorizer.Decision
		failed bool
	}{
		"allowed":    {file: webhookFile(kubeconfig), user: "alice", want: authorizer.Allow},
		"no opinion": {file: webhookFile(kubeconfig), user: "bob", want: authorizer.NoOpinion},
		"the webhook is unreachable": {
			file:   strings.Replace(webhookFile(dead), "timeout: 10s", shorter, 1),
			user:   "alice",
			want:   authorizer.NoOpinion,
			failed: true,
		},
		"the webhook is unreachable, failure policy Deny": {
			file: strings.NewReplacer("timeout: 10s", shorter, "NoOpinion", "Deny").Replace(webhookFile(dead)),
			user: "alice",
			want: authorizer.Deny,
		},
		"match condition is false": {
			file: webhookFile(kubeconfig) + "    matchConditions: [{expression: request.user == 'bob'}]\n",
			user: "alice",
			want: authorizer.NoOpinion,
		},
		"match condition is true": {
			file: webhookFile(kubeconfig) + "    matchConditions: [{expression: request.user == 'alice'}]\n",
			user: "alice",
			want: authorizer.Allow,
		},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := authzconfig.Parse([]byte(test.file), anyCondition{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := modes.New(newBuilder(t), parsed)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if d, reason, err := r.Authorize(t.Context(), newGetRequest(test.user)); d != test.want || test.failed && err == nil {
				t.Errorf("got %v, reason %q, error %v, want %v, error: %t", d, reason, err, test.want, test.failed)
			}
		})
	}
}

// TestUnusableAuthorizersAreRejected checks that New rejects authorizers that cannot work.
func TestUnusableAuthorizersAreRejected(t *testing.T) {
	kubeconfig := startWebhook(t, func(string) bool { return true })
	for name, file := range map[string]string{
		"invalid condition":             webhookFile(kubeconfig) + "    matchConditions: [{expression: request.nothing}]\n",
		"node authorizer without nodes": webhookFile(kubeconfig) + "- {type: Node, name: node}\n",
	} {
		parsed, err := authzconfig.Parse([]byte(file), anyCondition{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := modes.New(newBuilderWithoutNodes(t), parsed); err == nil {
			r.Close()
			t.Errorf("%s: got no error, want one", name)
		}
	}
	if r, err := modes.New(newBuilder(t), authzconfig.FromFlags(authzconfig.Flags{
		Modes:      []string{"ABAC"},
		PolicyFile: "/no/such/file",
	})); err == nil {
		r.Close()
		t.Error("got a policy, want none")
	}
}
