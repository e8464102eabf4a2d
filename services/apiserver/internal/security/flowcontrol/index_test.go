package flowcontrol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestFirstMatchingSchemaWins checks that after any changes, the index finds the same schema as a
// linear search.
func TestFirstMatchingSchemaWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		compiler := flowcontrol.NewCompiler()
		control := flowcontrol.New(flowcontrol.Options{Seats: 1000, Metrics: newMetrics()})
		schemas, levels := map[string]*flowcontrolv1.FlowSchema{}, map[string]bool{"exempt": true, "catch-all": true}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				name := rapid.SampledFrom([]string{"a", "b", "c", "d", "exempt", "catch-all"}).Draw(t, "schema")
				if rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
					delete(schemas, name)
					compiler.DropSchema(name)
					continue
				}
				schemas[name] = drawSchema(t, name)
				compiler.PutSchema(schemas[name])
			}
			level := rapid.SampledFrom([]string{"l", "m"}).Draw(t, "level")
			levels[level] = rapid.Bool().Draw(t, "there")
			if levels[level] {
				compiler.PutLevel(newRejectingLevel(level, 1000))
			} else {
				compiler.DropLevel(level)
			}
			control.SetConfig(compiler.Config())
			for range 8 {
				user, info := drawUser(t), drawOperation(t)
				request, class, err := control.Acquire(t.Context(), user, info, nil)
				if err != nil {
					t.Fatal(err)
				}
				control.Release(request)
				if want := searchLinearly(schemas, levels, user, info); class.SchemaUID != want {
					t.Fatalf("%+v of %+v: got schema %q, want %q", info, user, class.SchemaUID, want)
				}
			}
		}
	})
}

// searchLinearly returns the UID of the first matching schema by a linear search, as the API
// documentation describes it.
func searchLinearly(
	schemas map[string]*flowcontrolv1.FlowSchema, levels map[string]bool, user *request.User, info *requestinfo.Info,
) string {
	candidates := map[string]*flowcontrolv1.FlowSchema{
		"exempt":    newSchema("exempt", "exempt", 1, newGroup("system:masters")),
		"catch-all": newSchema("catch-all", "catch-all", 10000, newGroup("system:authenticated"), newGroup("system:unauthenticated")),
	}
	candidates["exempt"].UID, candidates["catch-all"].UID = "", ""
	for name, schema := range schemas {
		candidates[name] = schema
	}
	var first *flowcontrolv1.FlowSchema
	for _, schema := range candidates {
		matches := slices.ContainsFunc(schema.Spec.Rules, func(r flowcontrolv1.PolicyRulesWithSubjects) bool {
			return ruleMatches(&r, user, info)
		})
		if !levels[schema.Spec.PriorityLevelConfiguration.Name] || !matches {
			continue
		}
		if first == nil ||
			schema.Spec.MatchingPrecedence < first.Spec.MatchingPrecedence ||
			schema.Spec.MatchingPrecedence == first.Spec.MatchingPrecedence && schema.Name < first.Name {
			first = schema
		}
	}
	if first == nil {
		first = candidates["catch-all"]
		if !levels[first.Spec.PriorityLevelConfiguration.Name] {
			return ""
		}
	}
	return string(first.UID)
}

func ruleMatches(subjects *flowcontrolv1.PolicyRulesWithSubjects, user *request.User, info *requestinfo.Info) bool {
	contains := func(list []string, s string) bool { return slices.Contains(list, "*") || slices.Contains(list, s) }
	subject := slices.ContainsFunc(subjects.Subjects, func(s flowcontrolv1.Subject) bool {
		switch s.Kind {
		case flowcontrolv1.SubjectKindUser:
			return s.User.Name == "*" || s.User.Name == user.Name
		case flowcontrolv1.SubjectKindGroup:
			return s.Group.Name == "*" || slices.Contains(user.Groups, s.Group.Name)
		}
		if prefix := "system:serviceaccount:" + s.ServiceAccount.Namespace + ":"; s.ServiceAccount.Name == "*" {
			return strings.HasPrefix(user.Name, prefix)
		} else {
			return user.Name == prefix+s.ServiceAccount.Name
		}
	})
	if !subject {
		return false
	}
	if info.IsResource {
		resource := info.Resource
		if info.Subresource != "" {
			resource += "/" + info.Subresource
		}
		return slices.ContainsFunc(subjects.ResourceRules, func(p flowcontrolv1.ResourcePolicyRule) bool {
			scope := p.ClusterScope
			if info.Namespace != "" {
				scope = contains(p.Namespaces, info.Namespace)
			}
			return scope && contains(p.Verbs, info.Verb) && contains(p.APIGroups, info.Group) && contains(p.Resources, resource)
		})
	}
	return slices.ContainsFunc(subjects.NonResourceRules, func(p flowcontrolv1.NonResourcePolicyRule) bool {
		return contains(p.Verbs, info.Verb) && slices.ContainsFunc(p.NonResourceURLs, func(url string) bool {
			return url == info.Path || strings.HasSuffix(url, "*") && strings.HasPrefix(info.Path, url[:len(url)-1])
		})
	})
}

// drawList draws a short or long list with some of the names.
func drawList(t *rapid.T, name string, names ...string) []string {
	list := rapid.SliceOfN(rapid.SampledFrom(append(names, "*", "other")), 1, 4).Draw(t, name)
	if rapid.Bool().Draw(t, "long "+name) {
		for i := range 10 {
			list = append(list, fmt.Sprint("no-", i))
		}
	}
	return list
}

var (
	verbs, groups, resources = []string{"get", "list", "watch"}, []string{"", "apps"}, []string{"pods", "pods/log", "deployments", "pods/", "log"}
	namespaces, paths        = []string{"n", "m"}, []string{"/healthz", "/healthz/*", "/healthz/etcd", "/h*", "/api"}
	precedences              = []int32{1, 1, 2, 100, 10000, 10001}
)

func drawSchema(t *rapid.T, name string) *flowcontrolv1.FlowSchema {
	flowSchema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("of-" + name)}}
	flowSchema.Spec.PriorityLevelConfiguration.Name = rapid.SampledFrom([]string{"l", "m", "exempt", "catch-all"}).Draw(t, "level")
	flowSchema.Spec.MatchingPrecedence = rapid.SampledFrom(precedences).Draw(t, "precedence")
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		var subjects flowcontrolv1.PolicyRulesWithSubjects
		for range rapid.IntRange(1, 3).Draw(t, "subjects") {
			subjects.Subjects = append(subjects.Subjects, drawSubject(t))
		}
		for range rapid.IntRange(0, 2).Draw(t, "resource rules") {
			subjects.ResourceRules = append(subjects.ResourceRules, flowcontrolv1.ResourcePolicyRule{
				Verbs:        drawList(t, "verbs", verbs...),
				APIGroups:    drawList(t, "groups", groups...),
				Resources:    drawList(t, "resources", resources...),
				ClusterScope: rapid.Bool().Draw(t, "cluster"),
				Namespaces:   drawList(t, "namespaces", namespaces...),
			})
		}
		for range rapid.IntRange(0, 2).Draw(t, "other rules") {
			subjects.NonResourceRules = append(subjects.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{
				Verbs:           drawList(t, "verbs", verbs...),
				NonResourceURLs: drawList(t, "paths", paths...),
			})
		}
		flowSchema.Spec.Rules = append(flowSchema.Spec.Rules, subjects)
	}
	return flowSchema
}

func drawSubject(t *rapid.T) flowcontrolv1.Subject {
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		name := rapid.SampledFrom([]string{"alice", "system:serviceaccount:n:a", "*", "g"}).Draw(t, "user")
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
	case 1:
		return newGroup(rapid.SampledFrom([]string{"g", "h", "alice", "*", "system:masters", "system:authenticated"}).Draw(t, "group"))
	}
	return flowcontrolv1.Subject{
		Kind: flowcontrolv1.SubjectKindServiceAccount,
		ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
			Namespace: rapid.SampledFrom(namespaces).Draw(t, "of"),
			Name:      rapid.SampledFrom([]string{"a", "b", "*"}).Draw(t, "account"),
		},
	}
}

func drawUser(t *rapid.T) *request.User {
	return &request.User{
		Name: rapid.SampledFrom([]string{
			"alice", "bob", "system:serviceaccount:n:a", "system:serviceaccount:m:b", "system:serviceaccount:n",
		}).Draw(t, "user"),
		Groups: rapid.SliceOfDistinct(rapid.SampledFrom([]string{"g", "h", "system:masters", "system:authenticated"}),
			func(s string) string { return s }).Draw(t, "groups"),
	}
}

func drawOperation(t *rapid.T) *requestinfo.Info {
	info := &requestinfo.Info{
		Verb: rapid.SampledFrom(verbs).Draw(t, "verb"),
		Path: rapid.SampledFrom(append(paths, "/healthz/", "/no-3")).Draw(t, "path"),
	}
	info.IsResource = rapid.Bool().Draw(t, "resource")
	if info.IsResource {
		info.Group, info.Resource = rapid.SampledFrom(groups).Draw(t, "group"), rapid.SampledFrom([]string{"pods", "deployments", "no-3"}).Draw(t, "resource")
		info.Subresource, info.Namespace = rapid.SampledFrom([]string{"", "log"}).Draw(t, "sub"), rapid.SampledFrom([]string{"", "n", "m"}).Draw(t, "namespace")
	}
	return info
}
