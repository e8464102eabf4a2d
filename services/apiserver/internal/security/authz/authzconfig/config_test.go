package authzconfig_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/security/authz/authzconfig"
)

// conditions rejects the expression "bad".
type conditions struct{}

func (conditions) Check(e string) error {
	if e == "bad" {
		return errors.New("compilation failed: bad")
	}
	return nil
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"

func kubeconfigFile(t testing.TB) string {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// webhookYAML returns a valid webhook. changes are "field: value" lines that replace others, or
// "-field" to remove one.
func webhookYAML(file string, changes ...string) string {
	lines := []string{
		"timeout: 3s", "subjectAccessReviewVersion: v1", "matchConditionSubjectAccessReviewVersion: v1", "failurePolicy: NoOpinion",
		"connectionInfo: {type: KubeConfigFile, kubeConfigFile: " + file + "}",
	}
	for _, c := range changes {
		name, _, _ := strings.Cut(strings.TrimPrefix(c, "-"), ":")
		kept := []string{}
		for _, l := range lines {
			if !strings.HasPrefix(l, name+":") {
				kept = append(kept, l)
			}
		}
		lines = kept
		if !strings.HasPrefix(c, "-") {
			lines = append(lines, c)
		}
	}
	return head + "authorizers:\n- type: Webhook\n  name: w\n  webhook:\n    " + strings.Join(lines, "\n    ") + "\n"
}

// TestValidFilesGetDefaults checks the values and the defaults of valid files in every version.
func TestValidFilesGetDefaults(t *testing.T) {
	file := kubeconfigFile(t)
	full := webhookYAML(file, "authorizedTTL: 1m0s", "unauthorizedTTL: 7s",
		"failurePolicy: Deny", "subjectAccessReviewVersion: v1beta1", "matchConditions: [{expression: a}, {expression: b}]") +
		"- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n"
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		c, err := authzconfig.Parse([]byte(strings.Replace(full, "k8s.io/v1", "k8s.io/"+version, 1)), conditions{})
		if err != nil {
			t.Fatalf("Parse of version %s: got error %v, want none", version, err)
		}
		w := c.Authorizers[0].Webhook
		if len(c.Authorizers) != 3 || !c.Has(authzconfig.Node) ||
			c.Has(authzconfig.ABAC) || w.AuthorizedTTL.Duration != time.Minute || w.UnauthorizedTTL.Duration != 7*time.Second ||
			w.Timeout.Duration != 3*time.Second || w.FailurePolicy != authzconfig.PolicyDeny ||
			w.SubjectAccessReviewVersion != "v1beta1" || len(w.MatchConditions) != 2 || *w.ConnectionInfo.KubeConfigFile != file {
			t.Errorf("%s: got %+v with webhook %+v, want Webhook, Node, RBAC, and the values of the file", version, c, w)
		}
	}
	two := webhookYAML(file) + strings.Replace(strings.TrimPrefix(webhookYAML(file), head+"authorizers:\n"), "name: w", "name: v", 1)
	if c, err := authzconfig.Parse([]byte(two), conditions{}); err != nil || len(c.Authorizers) != 2 {
		t.Errorf("two webhooks: got %+v, %v; want no error, length 2", c, err)
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		plain := strings.Replace(webhookYAML(file, "-matchConditionSubjectAccessReviewVersion"), "k8s.io/v1", "k8s.io/"+version, 1)
		if _, err := authzconfig.Parse([]byte(plain), conditions{}); err != nil {
			t.Errorf("%s, without conditions and their version: got %v, want no error", version, err)
		}
	}
	c, err := authzconfig.Parse([]byte(webhookYAML(file)), conditions{})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Authorizers[0].Webhook; w.AuthorizedTTL.Duration != 5*time.Minute || w.UnauthorizedTTL.Duration != 30*time.Second {
		t.Errorf("defaults: got %+v; want %v, %v", w, 5*time.Minute, 30*time.Second)
	}
}

// TestInvalidFilesAreRejectedWithPath rejects invalid configurations with the path of the field.
func TestInvalidFilesAreRejectedWithPath(t *testing.T) {
	file := kubeconfigFile(t)
	many := "matchConditions: ["
	for i := range 65 {
		many += "{expression: \"e" + strings.Repeat("x", i) + "\"},"
	}
	many += "]"
	at := "authorizers[0].webhook."
	for _, test := range []struct{ content, want string }{
		{content: "", want: `apiVersion "", kind ""`},
		{content: "x", want: "decode: "},
		{content: strings.Replace(head, "config.k8s.io/v1", "config.k8s.io/v2", 1), want: `apiVersion "apiserver.config.k8s.io/v2"`},
		{content: strings.Replace(head, "AuthorizationConfiguration", "Other", 1), want: `kind "Other"`},
		{
			content: strings.Replace(head, "apiserver.config.k8s.io", "example.com", 1) + "authorizers: [{type: RBAC, name: a}]",
			want:    `apiVersion "example.com/v1"`,
		},
		{content: head, want: "authorizers: Required value: at least one authorization mode must be defined"},
		{content: head + "authorizers: [{type: RBAC, name: a}]\nmore: 1", want: `unknown field "more"`},
		{content: head + "authorizers: [{type: RBAC, name: a}]\nauthorizers: [{type: RBAC, name: a}]", want: `already set`},
		{content: head + "authorizers: [{type: RBAC, name: a, nmae: b}]", want: `unknown field "authorizers[0].nmae"`},
		{content: head + "authorizers: [{name: a}]", want: "authorizers[0].type: Required value"},
		{
			content: head + "authorizers: [{type: ABAC, name: a}]",
			want:    `authorizers[0].type: Unsupported value: "ABAC": supported values: "Node", "RBAC", "Webhook"`,
		},
		{
			content: head + "authorizers: [{type: RBAC, name: a}, {type: RBAC, name: b}]",
			want:    `authorizers[1].type: Duplicate value: "RBAC"`,
		},
		{content: head + "authorizers: [{type: RBAC}]", want: "authorizers[0].name: Required value"},
		{
			content: head + "authorizers: [{type: RBAC, name: a}, {type: Node, name: a}]",
			want:    `authorizers[1].name: Duplicate value: "a"`,
		},
		{
			content: head + "authorizers: [{type: RBAC, name: A_b}]",
			want:    "authorizers[0].name: Invalid value: \"A_b\": authorizer name is invalid",
		},
		{
			content: head + "authorizers: [{type: RBAC, name: roles}]",
			want:    "authorizers[0].name: expected name rbac for authorizer RBAC instead of roles",
		},
		{
			content: head + "authorizers: [{type: RBAC, name: rbac}, {type: Node, name: nodes}]",
			want:    "authorizers[1].name: expected name node for authorizer Node instead of nodes",
		},
		{
			content: head + "authorizers: [{type: Webhook, name: a}]",
			want:    "authorizers[0].webhook: Required value: required when type=Webhook",
		},
		{
			content: head + "authorizers: [{type: RBAC, name: a, webhook: {}}]",
			want:    "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
		},
		{content: webhookYAML(file, "-timeout"), want: at + "timeout: Required value"},
		{content: webhookYAML(file, "timeout: 31s"), want: at + `timeout: Invalid value: "31s": must be > 0s and <= 30s`},
		{content: webhookYAML(file, "timeout: -1s"), want: at + `timeout: Invalid value: "-1s"`},
		{content: webhookYAML(file, "timeout: soon"), want: `invalid duration "soon"`},
		{content: webhookYAML(file, "authorizedTTL: -1s"), want: at + `authorizedTTL: Invalid value: "-1s": must be > 0s`},
		{content: webhookYAML(file, "unauthorizedTTL: -1s"), want: at + `unauthorizedTTL: Invalid value: "-1s": must be > 0s`},
		{content: webhookYAML(file, "-subjectAccessReviewVersion"), want: at + "subjectAccessReviewVersion: Required value"},
		{
			content: webhookYAML(file, "subjectAccessReviewVersion: v2"),
			want:    at + `subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1"`,
		},
		{
			content: webhookYAML(file, "-matchConditionSubjectAccessReviewVersion", "matchConditions: [{expression: a}]"),
			want:    at + "matchConditionSubjectAccessReviewVersion: Required value",
		},
		{
			content: webhookYAML(file, "matchConditionSubjectAccessReviewVersion: v1beta1"),
			want:    at + `matchConditionSubjectAccessReviewVersion: Unsupported value: "v1beta1": supported values: "v1"`,
		},
		{content: webhookYAML(file, "-failurePolicy"), want: at + "failurePolicy: Required value"},
		{
			content: webhookYAML(file, "failurePolicy: Allow"),
			want:    at + `failurePolicy: Unsupported value: "Allow": supported values: "NoOpinion", "Deny"`,
		},
		{content: webhookYAML(file, "-connectionInfo"), want: at + "connectionInfo.type: Required value"},
		{
			content: webhookYAML(file, "connectionInfo: {type: InClusterConfig}"),
			want:    at + `connectionInfo.type: Invalid value: "InClusterConfig"`,
		},
		{content: webhookYAML(file, "connectionInfo: {type: URL}"), want: at + `connectionInfo.type: Unsupported value: "URL"`},
		{
			content: webhookYAML(file, "connectionInfo: {type: KubeConfigFile}"),
			want:    at + "connectionInfo.kubeConfigFile: Required value",
		},
		{
			content: webhookYAML(file, `connectionInfo: {type: KubeConfigFile, kubeConfigFile: ""}`),
			want:    at + "connectionInfo.kubeConfigFile: Required value",
		},
		{
			content: webhookYAML("relative"),
			want:    at + `connectionInfo.kubeConfigFile: Invalid value: "relative": must be an absolute path`,
		},
		{
			content: webhookYAML("/no/such/file"),
			want:    at + `connectionInfo.kubeConfigFile: Invalid value: "/no/such/file": error loading file`,
		},
		{content: webhookYAML(filepath.Dir(file)), want: "must be a regular file"},
		{content: webhookYAML(file, many), want: at + "matchConditions: Too many: 65: must have at most 64 items"},
		{
			content: webhookYAML(file, `matchConditions: [{expression: " "}]`),
			want:    at + "matchConditions[0].expression: Required value",
		},
		{
			content: webhookYAML(file, "matchConditions: [{expression: a}, {expression: a}]"),
			want:    at + `matchConditions[1].expression: Duplicate value: "a"`,
		},
		{
			content: webhookYAML(file, "matchConditions: [{expression: bad}]"),
			want:    at + `matchConditions[0].expression: Invalid value: "bad": compilation failed: bad`,
		},
	} {
		if _, err := authzconfig.Parse([]byte(test.content), conditions{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\ngot  %v\nwant %s", test.content, err, test.want)
		}
	}
}

// TestFlagsBecomeConfiguration validates the authorization flags, and checks the configuration that they stand for.
func TestFlagsBecomeConfiguration(t *testing.T) {
	good := authzconfig.Flags{Modes: []string{"Node", "RBAC"}, WebhookVersion: "v1beta1"}
	for _, test := range []struct {
		change func(*authzconfig.Flags)
		want   string // part of the error; empty when valid
	}{
		{change: func(*authzconfig.Flags) {}, want: ""},
		{
			change: func(f *authzconfig.Flags) {
				f.Modes = authzconfig.Modes()
				f.PolicyFile, f.WebhookConfigFile = "p", "w"
			},
			want: "",
		},
		{change: func(f *authzconfig.Flags) { f.Modes = nil }, want: "must name at least one mode"},
		{change: func(f *authzconfig.Flags) { f.Modes = []string{"RBAC", "Magic"} }, want: `"Magic" is not one of`},
		{change: func(f *authzconfig.Flags) { f.Modes = []string{"RBAC", "RBAC"} }, want: `"RBAC" is given twice`},
		{change: func(f *authzconfig.Flags) { f.Modes = []string{"ABAC"} }, want: "ABAC and --authorization-policy-file go together"},
		{change: func(f *authzconfig.Flags) { f.PolicyFile = "p" }, want: "ABAC and --authorization-policy-file go together"},
		{
			change: func(f *authzconfig.Flags) { f.Modes = []string{"Webhook"} },
			want:   "Webhook and --authorization-webhook-config-file go together",
		},
		{
			change: func(f *authzconfig.Flags) { f.WebhookConfigFile = "w" },
			want:   "Webhook and --authorization-webhook-config-file go together",
		},
		{change: func(f *authzconfig.Flags) { f.WebhookVersion = "v3" }, want: `"v3" is neither v1 nor v1beta1`},
		{change: func(f *authzconfig.Flags) { f.WebhookVersion = "v1" }, want: ""},
		{change: func(f *authzconfig.Flags) { f.AuthorizedTTL = -1 }, want: "must not be negative"},
		{change: func(f *authzconfig.Flags) { f.UnauthorizedTTL = -1 }, want: "must not be negative"},
	} {
		f := good
		test.change(&f)
		err := errors.Join(f.Validate()...)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %s", f, err, test.want)
		}
	}
	f := authzconfig.Flags{
		Modes:             []string{"ABAC", "Webhook", "RBAC"},
		PolicyFile:        "p",
		WebhookConfigFile: "w",
		WebhookVersion:    "v1",
		AuthorizedTTL:     time.Hour,
		UnauthorizedTTL:   time.Minute,
	}
	c := authzconfig.FromFlags(f)
	w := c.Authorizers[1].Webhook
	if len(c.Authorizers) != 3 || c.Authorizers[0].PolicyFile != "p" || c.Authorizers[2].Type != authzconfig.RBAC || w == nil ||
		*w.ConnectionInfo.KubeConfigFile != "w" ||
		w.FailurePolicy != authzconfig.PolicyNoOpinion ||
		w.AuthorizedTTL.Duration != time.Hour ||
		w.Timeout.Duration != authzconfig.MaxTimeout {
		t.Errorf("from flags: got %+v with webhook %+v, want ABAC, Webhook, RBAC, and the values of the flags", c, w)
	}
}

// FuzzParse checks that every accepted file has complete authorizers.
func FuzzParse(f *testing.F) {
	file := kubeconfigFile(f)
	f.Add([]byte(webhookYAML(file, "matchConditions: [{expression: a}]")))
	f.Add([]byte(head + "authorizers: [{type: RBAC, name: rbac}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := authzconfig.Parse(data, conditions{})
		if err != nil {
			return
		}
		for _, a := range c.Authorizers {
			if a.Name == "" ||
				(a.Type == authzconfig.Webhook) != (a.Webhook != nil) ||
				a.Webhook != nil && a.Webhook.Timeout.Duration <= 0 {
				t.Errorf("Parse(%q): got no error, want one", data)
			}
		}
	})
}
