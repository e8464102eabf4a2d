package build

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// TestInternalCallsAreAuditedLikeRequests checks that internal calls have the effect and the audit events of the
// equivalent client requests.
func TestInternalCallsAreAuditedLikeRequests(t *testing.T) {
	t.Parallel()
	fixture := startAudited(t, func(options *config.Options) {
		err := os.WriteFile(options.Audit.PolicyFile,
			[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Request, resources: [{resources: [secrets]}]}, {level: RequestResponse}]\n"),
			0o600)
		if err != nil {
			t.Fatal(err)
		}
	})
	ctx := t.Context()
	client := fixture.server.sets.client
	all := internalclient.Collection("", "v1", "configmaps", "")
	here := internalclient.Collection("", "v1", "configmaps", "a")
	there := internalclient.Collection("", "v1", "configmaps", "req")
	object := func(name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": value}},
			Data:       map[string]string{"k": value},
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	listed := func(ref internalclient.Ref, labels map[string]string) string {
		t.Helper()
		var list corev1.ConfigMapList
		must(client.List(ctx, ref, labels, &list))
		var names []string
		for _, m := range list.Items {
			if m.Labels["of"] != "" {
				names = append(names, m.Namespace+"/"+m.Name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}

	// 1. Create objects, and list them by namespace and label.
	must(client.Create(ctx, here, object("one", "x")))
	must(client.Create(ctx, here, object("two", "y")))
	must(client.Create(ctx, there, object("one", "y")))
	for _, c := range []struct{ got, want string }{
		{got: listed(all, nil), want: "a/one a/two req/one"},
		{got: listed(here, nil), want: "a/one a/two"},
		{got: listed(all, map[string]string{"of": "y"}), want: "a/two req/one"},
	} {
		if c.got != c.want {
			t.Errorf("got list %s, want %s", c.got, c.want)
		}
	}

	// 2. Errors have the types that remote clients get.
	if err := client.Create(ctx, here, object("one", "x")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create of an existing object: got error %v, want AlreadyExists", err)
	}
	must(client.Ensure(ctx, here, object("one", "x")))
	must(client.Ensure(ctx, here, object("new", "x")))
	var live corev1.ConfigMap
	if err := client.Get(ctx, here.Named("none"), &live); !apierrors.IsNotFound(err) {
		t.Errorf("get of a missing object: got error %v, want NotFound", err)
	}

	// 3. Update, apply, patch and delete objects.
	must(client.Get(ctx, here.Named("one"), &live))
	stale := live.DeepCopy()
	live.Data["k"] = "z"
	must(client.Update(ctx, here.Named("one"), &live, &live))
	if live.ResourceVersion == stale.ResourceVersion {
		t.Errorf("after an update: got version %s unchanged, want another", live.ResourceVersion)
	}
	if err := client.Update(ctx, here.Named("one"), stale, nil); !apierrors.IsConflict(err) {
		t.Errorf("update of a stale object: got error %v, want a conflict", err)
	}
	must(client.WithManager("other").Apply(ctx, here.Named("one"), map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "one"},
		"data": map[string]any{"k": "forced"},
	}))
	must(client.GetCached(ctx, here.Named("one"), nil))
	must(client.Get(ctx, here.Named("one"), &live))
	if live.Data["k"] != "forced" {
		t.Errorf("forced apply: got value %q, want forced", live.Data["k"])
	}
	if err := client.Create(ctx, here, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}); err == nil {
		t.Error("create of a Pod as ConfigMap: got no error, want one")
	}
	must(client.Delete(ctx, here.Named("two"), nil))
	const ns = `{"status":{"phase":"Active"}}`
	must(client.Patch(ctx, internalclient.Collection("", "v1", "namespaces", "").Named("a").Subresource("status"),
		json.RawMessage(ns)))
	must(client.Create(ctx, internalclient.Collection("", "v1", "secrets", "a"), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		StringData: map[string]string{"k": "v"},
	}))
	must(client.LabelSecret(ctx, "a", "s", "l", "v"))

	// 4. All these calls were audited.
	fixture.checkOwnCalls(t)
}

// checkOwnCalls checks the events of internal calls.
func (fixture *auditFixture) checkOwnCalls(t *testing.T) {
	t.Helper()
	recorded := map[string]bool{}
	for line := range strings.Lines(fixture.read()) {
		var test struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        struct{ Namespace, Name, Subresource string }
			ResponseStatus   struct{ Code int }
			ResponseObject   struct{ Kind string }
		}
		if err := json.Unmarshal([]byte(line), &test); err != nil {
			t.Fatal(err)
		}
		if test.User.Username == "system:apiserver" {
			text, _ := json.Marshal([]any{
				test.Verb, test.RequestURI, test.ObjectRef.Name, test.ObjectRef.Subresource, test.ResponseStatus.Code,
				test.ResponseObject.Kind,
			})
			recorded[string(text)] = true
		}
	}
	const maps = "/api/v1/namespaces/a/configmaps"
	for _, want := range []string{
		`["create","` + maps + `","one","",201,"ConfigMap"]`, `["create","` + maps + `","one","",409,"Status"]`,
		`["update","` + maps + `/one","one","",200,"ConfigMap"]`, `["update","` + maps + `/one","one","",409,"Status"]`,
		`["patch","` + maps + `/one","one","",200,"ConfigMap"]`, `["delete","` + maps + `/two","two","",200,""]`,
		`["create","/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas","exempt","",201,"FlowSchema"]`,
		`["patch","/api/v1/namespaces/a/status","a","status",200,"Namespace"]`,
		`["create","/api/v1/namespaces/a/secrets","s","",201,""]`,
	} {
		if !recorded[want] {
			t.Errorf("%s was not audited", want)
		}
	}
}
