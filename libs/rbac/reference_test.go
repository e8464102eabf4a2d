package rbac_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"pgregory.net/rapid"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

// naiveEvaluator evaluates the objects rule by rule.
type naiveEvaluator struct {
	roles    map[string][]rbacv1.PolicyRule // namespace/name
	bindings map[string]*rbacv1.RoleBinding
}

func containsOrStar(list []string, v string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, v)
}

// allows reports whether one of the bindings allows the request.
func (n naiveEvaluator) allows(attributes *authorizer.Attributes) bool {
	for _, roleBinding := range n.bindings {
		if roleBinding.Namespace != "" && roleBinding.Namespace != attributes.Namespace {
			continue
		}
		if !slices.ContainsFunc(roleBinding.Subjects, func(subject rbacv1.Subject) bool {
			switch subject.Kind {
			case "User":
				return subject.Name != "" && subject.Name == attributes.User.Name
			case "Group":
				return slices.Contains(attributes.User.Groups, subject.Name)
			}
			ns := subject.Namespace
			if ns == "" {
				ns = roleBinding.Namespace
			}
			return ns != "" && attributes.User.Name == "system:serviceaccount:"+ns+":"+subject.Name
		}) {
			continue
		}
		ns := roleBinding.Namespace
		if roleBinding.RoleRef.Kind == "ClusterRole" {
			ns = ""
		}
		for _, policyRule := range n.roles[ns+"/"+roleBinding.RoleRef.Name] {
			if !containsOrStar(policyRule.Verbs, attributes.Verb) {
				continue
			}
			if !attributes.Resource {
				for _, u := range policyRule.NonResourceURLs {
					if u == attributes.Path || strings.HasSuffix(u, "*") && strings.HasPrefix(attributes.Path, strings.TrimRight(u, "*")) {
						return true
					}
				}
				continue
			}
			full := attributes.ResourceName
			if attributes.Subresource != "" {
				full += "/" + attributes.Subresource
			}
			match := containsOrStar(policyRule.Resources, full) || attributes.Subresource != "" && slices.Contains(policyRule.Resources, "*/"+attributes.Subresource)
			if match && containsOrStar(policyRule.APIGroups, attributes.Group) && (len(policyRule.ResourceNames) == 0 ||
				slices.Contains(policyRule.ResourceNames, attributes.Name)) {
				return true
			}
		}
	}
	return false
}

func genValues(values ...string) *rapid.Generator[[]string] {
	return rapid.SliceOfN(rapid.SampledFrom(values), 1, 3)
}

func genRule() *rapid.Generator[rbacv1.PolicyRule] {
	return rapid.Custom(func(t *rapid.T) rbacv1.PolicyRule {
		policyRule := rbacv1.PolicyRule{Verbs: genValues("get", "list", "create", "*").Draw(t, "verbs")}
		if rapid.IntRange(0, 3).Draw(t, "path") == 0 {
			policyRule.NonResourceURLs = genValues("/a", "/a/*", "/a/b", "*", "/*").Draw(t, "paths")
			return policyRule
		}
		policyRule.APIGroups = genValues("", "apps", "*").Draw(t, "groups")
		policyRule.Resources = genValues("pods", "pods/log", "*/log", "*/scale", "*", "jobs").Draw(t, "resources")
		if rapid.Bool().Draw(t, "named") {
			policyRule.ResourceNames = genValues("x", "y").Draw(t, "names")
		}
		return policyRule
	})
}

// genRequest generates requests with few names, so that rules match often.
func genRequest() *rapid.Generator[*authorizer.Attributes] {
	return rapid.Custom(func(t *rapid.T) *authorizer.Attributes {
		pick := func(what string, v ...string) string { return rapid.SampledFrom(v).Draw(t, what) }
		attributes := &authorizer.Attributes{
			User: &authorizer.User{
				Name:   pick("user", "", "alice", "bob", "system:serviceaccount:a:s", "system:serviceaccount::s"),
				Groups: rapid.SliceOfN(rapid.SampledFrom([]string{"dev", "ops"}), 0, 2).Draw(t, "groups"),
			},
			Verb: pick("verb", "get", "list", "delete"),
		}
		if rapid.IntRange(0, 3).Draw(t, "path") == 0 {
			attributes.Path = pick("path", "/a", "/a/b", "/a/", "/b", "")
			return attributes
		}
		attributes.Resource = true
		attributes.Group, attributes.ResourceName, attributes.Subresource = pick("group", "", "apps", "batch"), pick("resource", "pods",
			"jobs"), pick("sub", "", "log", "scale")
		attributes.Namespace, attributes.Name = pick("ns", "", "a", "b"), pick("name", "", "x", "y", "z")
		return attributes
	})
}

// TestAgreesWithNaiveEvaluation compares decisions of random policies with a simple implementation.
func TestAgreesWithNaiveEvaluation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		engine, naive := rbac.New(), naiveEvaluator{map[string][]rbacv1.PolicyRule{}, map[string]*rbacv1.RoleBinding{}}
		pick := func(what string, v ...string) string { return rapid.SampledFrom(v).Draw(t, what) }
		change := func() {
			ns, name := pick("ns", "", "a", "b"), pick("name", "p", "q")
			key := ns + "/" + name
			engine.Update(func(tx *rbac.Tx) {
				for range rapid.IntRange(1, 4).Draw(t, "changes") {
					switch rapid.IntRange(0, 5).Draw(t, "change") {
					case 0:
						delete(naive.roles, key)
						tx.Delete(map[bool]string{true: "ClusterRole", false: "Role"}[ns == ""], ns, name)
					case 1:
						delete(naive.bindings, key)
						tx.Delete(map[bool]string{true: "ClusterRoleBinding", false: "RoleBinding"}[ns == ""], ns, name)
					case 2, 3:
						rules := rapid.SliceOfN(genRule(), 0, 4).Draw(t, "rules")
						naive.roles[key] = rules
						if ns == "" {
							tx.Set(clusterRole(name, rules...))
						} else {
							tx.Set(role(ns, name, rules...))
						}
					default:
						roleBinding := binding(ns, name, ref("ClusterRole", pick("role", "p", "q", "none")))
						if ns != "" && rapid.Bool().Draw(t, "own role") {
							roleBinding.RoleRef.Kind = "Role"
						}
						roleBinding.Subjects = rapid.SliceOfN(rapid.SampledFrom([]rbacv1.Subject{
							user("alice"), user("bob"), group("dev"), group("ops"),
							{Kind: "ServiceAccount", Name: "s", Namespace: "a"}, {Kind: "ServiceAccount", Name: "s"},
						}), 0, 4).Draw(t, "subjects")
						naive.bindings[key] = roleBinding
						if ns == "" {
							tx.Set(clusterBinding(name, roleBinding.RoleRef, roleBinding.Subjects...))
						} else {
							tx.Set(roleBinding)
						}
					}
				}
			})
		}
		for range rapid.IntRange(1, 12).Draw(t, "updates") {
			change()
			for range 5 {
				request := genRequest().Draw(t, "ask")
				decision, reason, _ := engine.Authorize(context.Background(), request)
				if want := naive.allows(request); (decision == authorizer.Allow) != want {
					t.Fatalf("%+v of %+v: got %v %q, want allowed: %t", request, request.User, decision, reason, want)
				}
			}
		}
	})
}

// TestCoveringRulesAllowAtLeastAsMuch checks on random rules that Covers is consistent with
// decisions, and that adding the missing rules makes them covered.
func TestCoveringRulesAllowAtLeastAsMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owner := rapid.SliceOfN(genRule(), 0, 5).Draw(t, "owner")
		wanted := rapid.SliceOfN(genRule(), 1, 3).Draw(t, "wanted")
		ok, missing := rbac.Covers(owner, wanted)
		if ok != (len(missing) == 0) {
			t.Fatalf("got covers: %t, missing %v, want missing rules exactly if not covered", ok, missing)
		}
		if again, _ := rbac.Covers(append(owner, missing...), wanted); !again {
			t.Fatalf("with the missing rules %v added: got not covered, want covered", missing)
		}
		if !ok {
			return
		}
		has, gets := rbac.NewRuleSet(owner), rbac.NewRuleSet(wanted)
		for range 20 {
			if a := genRequest().Draw(t, "ask"); gets.Allows(a) && !has.Allows(a) {
				t.Fatalf("got %+v granted but not held, want it held", a)
			}
		}
	})
}
