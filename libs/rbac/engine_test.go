package rbac_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func role(ns, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Rules: rules}
}

func ref(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func binding(ns, name string, r rbacv1.RoleRef, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, RoleRef: r, Subjects: subjects}
}

func clusterBinding(name string, r rbacv1.RoleRef, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: r, Subjects: subjects}
}

func user(name string) rbacv1.Subject  { return rbacv1.Subject{Kind: "User", Name: name} }
func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "Group", Name: name} }

func rule(groups, resources, verbs string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups:     strings.Split(groups, ","),
		Resources:     strings.Split(resources, ","),
		Verbs:         strings.Split(verbs, ","),
		ResourceNames: names,
	}
}

func paths(urls, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: strings.Split(urls, ","), Verbs: strings.Split(verbs, ",")}
}

// newEngine returns an engine with a policy.
func newEngine(objs ...metav1.Object) *rbac.Engine {
	engine := rbac.New()
	engine.Update(func(tx *rbac.Tx) {
		for _, o := range objs {
			tx.Set(o)
		}
	})
	return engine
}

// attributesOf parses "verb group/resource[/sub] [ns[/name]]" or "verb /path".
func attributesOf(user *authorizer.User, text string) *authorizer.Attributes {
	words := strings.Fields(text)
	attributes := &authorizer.Attributes{User: user, Verb: words[0]}
	if strings.HasPrefix(words[1], "/") {
		attributes.Path = words[1]
		return attributes
	}
	attributes.Resource = true
	parts := strings.Split(words[1], ":")
	attributes.Group = parts[0]
	attributes.ResourceName, attributes.Subresource, _ = strings.Cut(parts[1], "/")
	if len(words) > 2 {
		attributes.Namespace, attributes.Name, _ = strings.Cut(words[2], "/")
	}
	return attributes
}

// TestAuthorizeReturnsDecisionAndReason checks decisions and their reasons for all kinds of rules,
// subjects and bindings.
func TestAuthorizeReturnsDecisionAndReason(t *testing.T) {
	engine := newEngine(
		role("a", "r",
			rule("", "pods/log", "get"),
			rule("", "configmaps", "get,list,watch,update", "one"),
			rule("", "configmaps", "create"),
			rule("apps", "*/scale", "*"),
			rule("*", "secrets", "deletecollection")),
		binding("a", "b", ref("Role", "r"), user("alice"), group("dev"),
			rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: "x"}, rbacv1.Subject{
				Kind: "ServiceAccount",
				Name: "local",
			}),
		clusterRole("reader", rule("", "services", "list"), paths("/livez/*,/metrics", "get")),
		binding("a", "reads", ref("ClusterRole", "reader"), user("bob")),
		clusterBinding("paths", ref("ClusterRole", "reader"), group("ops")),
		binding("a", "dangling", ref("Role", "nowhere"), user("carol")),
		clusterBinding("dangling", ref("ClusterRole", "nowhere"), user("carol")),
		clusterBinding("odd", ref("Roll", "x"), user("dave")),
		clusterBinding("homeless", ref("ClusterRole", "reader"), rbacv1.Subject{Kind: "ServiceAccount", Name: "robot"}),
	)
	alice := &authorizer.User{Name: "alice"}
	allowedTo := func(subject string) string { return `RBAC: allowed by RoleBinding "b/a" of Role "r" to ` + subject }
	const denied = "no"
	for _, test := range []struct {
		user    *authorizer.User
		request string
		want    string // reason for Allow, or "no" + reason
	}{
		{user: alice, request: "get :pods/log a/p", want: allowedTo(`User "alice"`)},
		{user: alice, request: "get :pods a/p", want: denied},
		{user: alice, request: "get :pods/log b/p", want: denied},
		{user: alice, request: "get :configmaps a/one", want: allowedTo(`User "alice"`)},
		{user: alice, request: "get :configmaps a/two", want: denied},
		{user: alice, request: "list :configmaps a", want: denied},
		{user: alice, request: "list :configmaps a/one", want: allowedTo(`User "alice"`)},
		{user: alice, request: "create :configmaps a", want: allowedTo(`User "alice"`)},
		{user: alice, request: "patch :configmaps a/one", want: denied},
		{user: alice, request: "get apps:statefulsets/scale a/x", want: allowedTo(`User "alice"`)},
		{user: alice, request: "get batch:jobs/scale a/x", want: denied},
		{user: alice, request: "get apps:statefulsets a/x", want: denied},
		{user: alice, request: "deletecollection any:secrets a", want: allowedTo(`User "alice"`)},
		{user: alice, request: "deletecollection any:secrets/scale a", want: denied},
		{user: &authorizer.User{Name: "z", Groups: []string{"dev"}}, request: "get :pods/log a/p", want: allowedTo(`Group "dev"`)},
		{
			user:    &authorizer.User{Name: "system:serviceaccount:x:robot"},
			request: "get :pods/log a/p",
			want:    allowedTo(`ServiceAccount "robot/x"`),
		},
		{
			user:    &authorizer.User{Name: "system:serviceaccount:a:local"},
			request: "get :pods/log a/p",
			want:    allowedTo(`ServiceAccount "local/a"`),
		},
		{
			user:    &authorizer.User{Name: "bob"},
			request: "list :services a",
			want:    `RBAC: allowed by RoleBinding "reads/a" of ClusterRole "reader" to User "bob"`,
		},
		{user: &authorizer.User{Name: "bob"}, request: "list :services", want: denied},
		{user: &authorizer.User{Name: "bob"}, request: "get /metrics", want: denied},
		{
			user:    &authorizer.User{Groups: []string{"ops"}},
			request: "get /metrics",
			want:    `RBAC: allowed by ClusterRoleBinding "paths" of ClusterRole "reader" to Group "ops"`,
		},
		{
			user:    &authorizer.User{Groups: []string{"ops"}},
			request: "get /livez/ping",
			want:    `RBAC: allowed by ClusterRoleBinding "paths" of ClusterRole "reader" to Group "ops"`,
		},
		{user: &authorizer.User{Groups: []string{"ops"}}, request: "get /livez", want: denied},
		{user: &authorizer.User{Groups: []string{"ops"}}, request: "head /metrics", want: denied},
		{user: &authorizer.User{Groups: []string{"ops"}}, request: "get /metrics/slis", want: denied},
		{
			user:    &authorizer.User{Name: "carol"},
			request: "list :services b",
			want:    denied + `RBAC: clusterrole.rbac.authorization.k8s.io "nowhere" not found`,
		},
		{
			user:    &authorizer.User{Name: "carol"},
			request: "list :services a",
			want:    denied + `RBAC: [clusterrole.rbac.authorization.k8s.io "nowhere" not found, role.rbac.authorization.k8s.io "nowhere" not found]`,
		},
		{
			user:    &authorizer.User{Name: "dave"},
			request: "list :services a",
			want:    denied + `RBAC: unsupported role reference kind: "Roll"`,
		},
		{user: &authorizer.User{}, request: "get /metrics", want: denied},
		{user: nil, request: "get /metrics", want: denied},
	} {
		decision, reason, err := engine.Authorize(context.Background(), attributesOf(test.user, test.request))
		if err != nil {
			t.Fatal(err)
		}
		got := reason
		if decision != authorizer.Allow {
			got = denied + reason
		}
		if got != test.want {
			t.Errorf("%v %s: %q, want %q", test.user, test.request, got, test.want)
		}
	}
}

// TestEscalationErrorNamesUserAndMissingRules checks that the error names the user, its groups, the
// missing rules and the missing roles, as in Kubernetes.
func TestEscalationErrorNamesUserAndMissingRules(t *testing.T) {
	engine := newEngine(
		clusterRole("some", rule("", "pods", "get")),
		clusterBinding("some", ref("ClusterRole", "some"), user("alice")),
		clusterBinding("none", ref("ClusterRole", "none"), user("alice")),
	)
	u := &authorizer.User{Name: "alice", Groups: []string{"dev", "system:authenticated"}}
	if err := engine.Snapshot().CheckEscalation(u, "", []rbacv1.PolicyRule{rule("", "pods", "get", "x")}); err != nil {
		t.Fatal(err)
	}
	err := engine.Snapshot().CheckEscalation(u, "a",
		[]rbacv1.PolicyRule{rule("", "pods", "get,delete,list"), paths("/x", "get"), rule("apps", "deployments", "get", "one")})
	const want = `user "alice" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["pods"], Verbs:["delete" "list"]}
{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["one"], Verbs:["get"]}
{NonResourceURLs:["/x"], Verbs:["get"]}; resolution errors: [clusterrole.rbac.authorization.k8s.io "none" not found]`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestAggregatedRoleFollowsSelectedRoles checks the rules of aggregated cluster roles, and which of
// them are stale.
func TestAggregatedRoleFollowsSelectedRoles(t *testing.T) {
	labeled := func(name string, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		r := clusterRole(name, rules...)
		r.Labels = labels
		return r
	}
	pods, jobs := rule("", "pods", "get"), rule("batch", "jobs", "get")
	total := labeled("total", map[string]string{"to": "total"})
	total.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "total"}}}}
	engine := newEngine(total, labeled("b", map[string]string{"to": "total"}, jobs, pods),
		labeled("a", map[string]string{"to": "total"}, pods), labeled("c", nil, rule("*", "*", "*")))
	stale := engine.Snapshot().Stale()
	if len(stale) != 1 || len(stale["total"]) != 2 || stale["total"][0].Resources[0] != "pods" ||
		stale["total"][1].Resources[0] != "jobs" {
		t.Fatalf("Stale() = %v, want total with the rules of pods and jobs", stale)
	}
	filled := total.DeepCopy()
	filled.Rules = stale["total"]
	engine.Update(func(tx *rbac.Tx) { tx.Set(filled) })
	if stale := engine.Snapshot().Stale(); stale != nil {
		t.Errorf("Stale() after the update = %v, want nil", stale)
	}
	engine.Update(func(tx *rbac.Tx) { tx.Delete(rbac.KindClusterRole, "", "b") })
	if stale := engine.Snapshot().Stale(); len(stale["total"]) != 1 {
		t.Errorf("Stale() after a deletion = %v, want 1", stale)
	}
}

// TestClearRemovesObjectsAndResetsPosition checks that positions only grow except through Clear,
// and that a snapshot does not change.
func TestClearRemovesObjectsAndResetsPosition(t *testing.T) {
	r := role("a", "r", rule("", "pods", "get"))
	r.ResourceVersion = "7"
	engine := newEngine(r, clusterRole("r", rule("", "pods", "get")),
		binding("a", "b", ref("Role", "r"), user("alice")), clusterBinding("b", ref("ClusterRole", "r"), user("bob")))
	if got := engine.Snapshot().Position(); got.String() != "clusterrolebindings=0,clusterroles=0,rolebindings=0,roles=7" {
		t.Errorf("got position %s, want roles at 7, the rest at 0", got)
	}
	before := engine.Snapshot()
	engine.Update(func(tx *rbac.Tx) {
		tx.Clear(rbac.KindRoleBinding)
		tx.Advance(rbac.KindRoleBinding, 9)
		tx.Advance(rbac.KindRoleBinding, 8)
	})
	if got := engine.Snapshot().Position(); got.String() != "clusterrolebindings=0,clusterroles=0,rolebindings=9,roles=7" {
		t.Errorf("got position %s, want roles at 7, rolebindings at 9, the rest at 0", got)
	}
	decide := func(s *rbac.Snapshot, name string) authorizer.Decision {
		d, _ := s.Authorize(attributesOf(&authorizer.User{Name: name}, "get :pods a/p"))
		return d
	}
	if got := decide(engine.Snapshot(), "alice"); got != authorizer.NoOpinion {
		t.Errorf("removed binding of alice: got %v, want %v", got, authorizer.NoOpinion)
	}
	if got := decide(engine.Snapshot(), "bob"); got != authorizer.Allow {
		t.Errorf("kept binding of bob: got %v, want %v", got, authorizer.Allow)
	}
	if decide(before, "alice") != authorizer.Allow {
		t.Errorf("alice in the earlier snapshot: got %v, want %v", decide(before, "alice"), authorizer.Allow)
	}
}

// TestDecisionsSeeNoPartialUpdate checks that no decision sees an intermediate state of updates.
func TestDecisionsSeeNoPartialUpdate(t *testing.T) {
	engine := newEngine(clusterRole("r", rule("", "pods", "get")), clusterBinding("b", ref("ClusterRole", "r"), group("dev")))
	user := &authorizer.User{Name: "alice", Groups: []string{"dev"}}
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if decision, _, _ := engine.Authorize(context.Background(), attributesOf(user, "get :pods a/p")); decision != authorizer.Allow {
					t.Errorf("get of pod a/p during updates: got %v, want %v", decision, authorizer.Allow)
					return
				}
			}
		})
	}
	for i := range 500 {
		engine.Update(func(tx *rbac.Tx) {
			tx.Set(clusterBinding(fmt.Sprint("b", i%7), ref("ClusterRole", "r"), group("dev")))
			tx.Delete(rbac.KindClusterRoleBinding, "", fmt.Sprint("b", (i+3)%7))
			tx.Set(clusterRole("r", rule("", "pods", "get"), rule("", fmt.Sprint(i), "get")))
		})
	}
	close(stop)
	readers.Wait()
}

// BenchmarkAuthorize measures decisions with up to 10,000 roles and bindings.
func BenchmarkAuthorize(b *testing.B) {
	for _, bindings := range []int{10, 1000, 10000} {
		engine := rbac.New()
		engine.Update(func(tx *rbac.Tx) {
			for i := range bindings {
				name := fmt.Sprintf("r%d", i)
				tx.Set(role("ns", name, rule("", "pods", "get,list,watch"), rule("apps", "deployments", "get"),
					rule("", "configmaps", "get", name)))
				tx.Set(binding("ns", name, ref("Role", name), user(fmt.Sprintf("u%d", i)), group(fmt.Sprintf("g%d", i))))
			}
		})
		u := &authorizer.User{Name: fmt.Sprintf("u%d", bindings/2), Groups: []string{"system:authenticated", "a", "b"}}
		for what, attributes := range map[string]*authorizer.Attributes{
			"allow":  attributesOf(u, "get :pods ns/x"),
			"refuse": attributesOf(u, "delete :pods ns/x"),
		} {
			b.Run(fmt.Sprintf("%s/%d", what, bindings), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					engine.Snapshot().Authorize(attributes)
				}
			})
		}
	}
}

// TestReasonsAreLimited binds a user to missing roles with long names, and to a role with a long
// name.
func TestReasonsAreLimited(t *testing.T) {
	long := strings.Repeat("n", 200_000)
	var objs []metav1.Object
	for i := range 100 {
		objs = append(objs, binding("ns", fmt.Sprint("b", i), ref("Role", fmt.Sprint(i, long)), user("u")))
	}
	objs = append(objs,
		role("ns", long, rule("", "pods", "get")),
		binding("ns", long, ref("Role", long), user("u"), user(long)))
	const most = 8 << 10
	for verb, want := range map[string]authorizer.Decision{"get": authorizer.Allow, "delete": authorizer.NoOpinion} {
		decision, reason, err := newEngine(objs...).Authorize(context.Background(), &authorizer.Attributes{
			User:         &authorizer.User{Name: "u"},
			Verb:         verb,
			Resource:     true,
			ResourceName: "pods",
			Version:      "v1",
			Namespace:    "ns",
			Name:         "p",
		})
		if err != nil || decision != want || len(reason) > most || reason == "" {
			t.Errorf("%s: got %v, a reason of %d bytes, %v, want %v and a reason of at most %d bytes", verb, decision,
				len(reason), err, want, most)
		}
	}
	rules, err := newEngine(objs...).RulesFor(context.Background(), &authorizer.User{Name: "u"}, "ns")
	if err == nil || len(err.Error()) > most || len(rules.Resource) != 1 {
		t.Errorf("%d rules, %.100v, want 1 rule and an error of at most %d bytes", len(rules.Resource), err, most)
	}
}

// TestUpdateReturnsTheDecisionsItAffects checks the Change for each kind of update; updates of
// metadata alone affect nothing.
func TestUpdateReturnsTheDecisionsItAffects(t *testing.T) {
	allow := rule("", "pods", "get")
	annotated := func(o metav1.Object) metav1.Object {
		o.SetAnnotations(map[string]string{"a": "b"})
		o.SetLabels(map[string]string{"a": "b"})
		return o
	}
	aggregated := clusterRole("sum")
	aggregated.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	engine := newEngine(
		role("a", "r", allow), clusterRole("r", allow), clusterRole("sum"),
		binding("a", "b", ref("Role", "r"), user("u")), clusterBinding("b", ref("ClusterRole", "r"), user("u")),
	)
	for _, test := range []struct {
		what           string
		update         func(*rbac.Tx)
		wantAll        bool
		wantNamespaces string
	}{
		{what: "annotations", update: func(tx *rbac.Tx) {
			for _, o := range []metav1.Object{
				role("a", "r", allow), clusterRole("r", allow), binding("a", "b", ref("Role", "r"), user("u")),
				clusterBinding("b", ref("ClusterRole", "r"), user("u")),
			} {
				tx.Set(annotated(o))
			}
		}, wantAll: false, wantNamespaces: ""},
		{what: "deletions of missing objects", update: func(tx *rbac.Tx) {
			tx.Delete(rbac.KindRole, "a", "none")
			tx.Delete(rbac.KindClusterRoleBinding, "", "none")
		}, wantAll: false, wantNamespaces: ""},
		{what: "rules of a role", update: func(tx *rbac.Tx) { tx.Set(role("a", "r", allow, allow)) }, wantAll: false, wantNamespaces: "a"},
		{
			what:           "subjects of a binding",
			update:         func(tx *rbac.Tx) { tx.Set(binding("a", "b", ref("Role", "r"), user("v"))) },
			wantAll:        false,
			wantNamespaces: "a",
		},
		{
			what:           "roleRef of a binding",
			update:         func(tx *rbac.Tx) { tx.Set(binding("a", "b", ref("ClusterRole", "r"), user("v"))) },
			wantAll:        false,
			wantNamespaces: "a",
		},
		{what: "new objects", update: func(tx *rbac.Tx) {
			tx.Set(role("b", "r", allow))
			tx.Set(binding("c", "b", ref("Role", "r"), user("u")))
		}, wantAll: false, wantNamespaces: "b,c"},
		{what: "deletions", update: func(tx *rbac.Tx) {
			tx.Delete(rbac.KindRole, "b", "r")
			tx.Delete(rbac.KindRoleBinding, "c", "b")
		}, wantAll: false, wantNamespaces: "b,c"},
		{what: "rules of a cluster role", update: func(tx *rbac.Tx) { tx.Set(clusterRole("r")) }, wantAll: true, wantNamespaces: ""},
		{what: "an aggregation rule", update: func(tx *rbac.Tx) { tx.Set(aggregated) }, wantAll: true, wantNamespaces: ""},
		{
			what:           "a cluster role binding",
			update:         func(tx *rbac.Tx) { tx.Set(clusterBinding("b", ref("ClusterRole", "r"))) },
			wantAll:        true,
			wantNamespaces: "",
		},
		{
			what:           "the deletion of a cluster role",
			update:         func(tx *rbac.Tx) { tx.Delete(rbac.KindClusterRole, "", "r") },
			wantAll:        true,
			wantNamespaces: "",
		},
		{what: "a reload", update: func(tx *rbac.Tx) { tx.Clear(rbac.KindRole) }, wantAll: true, wantNamespaces: "a"},
	} {
		got := engine.Update(test.update)
		if names := strings.Join(slices.Sorted(maps.Keys(got.Namespaces)), ","); got.All != test.wantAll ||
			names != test.wantNamespaces || got.Position != engine.Snapshot().Position() {
			t.Errorf("%s: %+v, want all=%v namespaces=%s", test.what, got, test.wantAll, test.wantNamespaces)
		}
	}
}
