package flowcontrol

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/libs/satoken"
	"binnacle/libs/sorted"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// compiledSchema is a flow schema in a form that is fast to match. It does not change.
type compiledSchema struct {
	name, uid, level string
	precedence       int32
	distinguisher    flowcontrolv1.FlowDistinguisherMethodType // or ""
	rules            []rule
	subjects         map[subject][]int32 // indexes of the rules by subject, in order
	bound            atomic.Pointer[boundSchema]
}

// subject is a subject of a rule.
type subject struct {
	kind subjectKind
	name string
}

// subjectKind distinguishes the subjects of a rule.
type subjectKind uint8

const (
	anySubject  subjectKind = iota // name is empty
	userSubject                    // also a single service account
	groupSubject
	namespaceSubject // all service accounts of a namespace
)

// rule is a compiled rule without its subjects, which compiledSchema.subjects indexes.
type rule struct {
	resources []resourceRule
	paths     []pathRule
}

// resourceRule is a compiled ResourcePolicyRule.
type resourceRule struct {
	verbs, groups, resources, namespaces nameSet
	cluster                              bool
}

// pathRule is a compiled NonResourcePolicyRule.
type pathRule struct{ verbs, paths nameSet }

// compileSchema returns a schema whose rules are indexed by their subjects.
func compileSchema(object *flowcontrolv1.FlowSchema) *compiledSchema {
	schema := &compiledSchema{
		name:       object.Name,
		uid:        string(object.UID),
		level:      object.Spec.PriorityLevelConfiguration.Name,
		precedence: object.Spec.MatchingPrecedence,
		rules:      make([]rule, len(object.Spec.Rules)),
		subjects:   map[subject][]int32{},
	}
	if m := object.Spec.DistinguisherMethod; m != nil {
		schema.distinguisher = m.Type
	}
	for i := range object.Spec.Rules {
		rules, compiled := &object.Spec.Rules[i], &schema.rules[i]
		for j := range rules.ResourceRules {
			source := &rules.ResourceRules[j]
			compiled.resources = append(compiled.resources,
				resourceRule{
					newNameSet(source.Verbs), newNameSet(source.APIGroups),
					newNameSet(source.Resources), newNameSet(source.Namespaces), source.ClusterScope,
				})
		}
		for j := range rules.NonResourceRules {
			source := &rules.NonResourceRules[j]
			compiled.paths = append(compiled.paths, pathRule{newNameSet(source.Verbs), newNameSet(source.NonResourceURLs)})
		}
		for j := range rules.Subjects {
			schema.addSubject(&rules.Subjects[j], int32(i))
		}
	}
	return schema
}

// addSubject records that rule i is about a subject.
func (s *compiledSchema) addSubject(object *flowcontrolv1.Subject, i int32) {
	var indexKey subject
	switch {
	case object.User != nil &&
		object.User.Name == flowcontrolv1.NameAll, object.Group != nil && object.Group.Name == flowcontrolv1.NameAll:
	case object.User != nil:
		indexKey = subject{userSubject, object.User.Name}
	case object.Group != nil:
		indexKey = subject{groupSubject, object.Group.Name}
	case object.ServiceAccount != nil && object.ServiceAccount.Name == flowcontrolv1.NameAll:
		indexKey = subject{namespaceSubject, object.ServiceAccount.Namespace}
	case object.ServiceAccount != nil:
		indexKey = subject{userSubject, satoken.Username(object.ServiceAccount.Namespace, object.ServiceAccount.Name)}
	default:
		return
	}
	if rules := s.subjects[indexKey]; len(rules) == 0 || rules[len(rules)-1] != i {
		s.subjects[indexKey] = append(rules, i)
	}
}

// compare orders schemas by precedence and name.
func (s *compiledSchema) compare(other *compiledSchema) int {
	return cmp.Or(cmp.Compare(s.precedence, other.precedence), cmp.Compare(s.name, other.name))
}

func (s *compiledSchema) matchesAny(indexes []int32, info *requestinfo.Info) bool {
	return slices.ContainsFunc(indexes, func(i int32) bool { return s.rules[i].matches(info) })
}

// matches reports whether the rule matches a request, regardless of its user.
func (r *rule) matches(info *requestinfo.Info) bool {
	if info.IsResource {
		for i := range r.resources {
			if r.resources[i].matches(info) {
				return true
			}
		}
		return false
	}
	for i := range r.paths {
		if p := &r.paths[i]; p.verbs.contains(info.Verb) && p.paths.containsPath(info.Path) {
			return true
		}
	}
	return false
}

func (p *resourceRule) matches(info *requestinfo.Info) bool {
	if info.Namespace == "" {
		if !p.cluster {
			return false
		}
	} else if !p.namespaces.contains(info.Namespace) {
		return false
	}
	return p.verbs.contains(info.Verb) &&
		p.groups.contains(info.Group) &&
		p.resources.containsResource(info.Resource, info.Subresource)
}

// serviceAccountNamespace returns the namespace in the user name of a service account. It does not
// validate the name.
func serviceAccountNamespace(user string) (string, bool) {
	rest, ok := strings.CutPrefix(user, accountPrefix)
	if !ok {
		return "", false
	}
	namespace, _, ok := strings.Cut(rest, ":")
	return namespace, ok
}

const accountPrefix = "system:serviceaccount:"

func (s *compiledSchema) flowOf(user *request.User, info *requestinfo.Info) string {
	switch s.distinguisher {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return user.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return info.Namespace
	}
	return ""
}

// nameSet is a list of a rule with fast membership tests. A long list is a map.
type nameSet struct {
	matchesAll bool     // the list contains "*"
	linear     []string // a short list, or the path patterns of a long one
	names      map[string]struct{}
}

// maxLinear is the maximum length of a list that is searched linearly.
const maxLinear = 8

// newNameSet returns the set of the names in a list, or of all names if it contains a star.
func newNameSet(list []string) nameSet {
	switch {
	case slices.Contains(list, "*"):
		return nameSet{matchesAll: true}
	case len(list) <= maxLinear:
		return nameSet{linear: slices.Clone(list)}
	}
	n := nameSet{names: make(map[string]struct{}, len(list))}
	for _, s := range list {
		n.names[s] = struct{}{}
		if strings.HasSuffix(s, "*") {
			n.linear = append(n.linear, s)
		}
	}
	return n
}

func (n *nameSet) contains(s string) bool {
	if n.matchesAll || slices.Contains(n.linear, s) {
		return true
	}
	_, ok := n.names[s]
	return ok
}

// containsResource reports whether the set has a resource or subresource. It does not allocate for
// short lists.
func (n *nameSet) containsResource(resource, sub string) bool {
	if sub == "" || n.matchesAll {
		return n.contains(resource)
	}
	if n.names != nil {
		return n.contains(resource + "/" + sub)
	}
	for _, s := range n.linear {
		if rest, ok := strings.CutPrefix(s, resource); ok && strings.HasPrefix(rest, "/") && rest[1:] == sub {
			return true
		}
	}
	return false
}

// containsPath reports whether the set has a path. A name that ends with an asterisk matches by
// prefix.
func (n *nameSet) containsPath(path string) bool {
	if n.contains(path) {
		return true
	}
	for _, s := range n.linear {
		if prefix, ok := strings.CutSuffix(s, "*"); ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// schemaIndex finds the schema of a request by its user, without a look at schemas about other
// users. Copies share unchanged nodes.
type schemaIndex struct {
	tree sorted.Set[indexEntry]
	seed maphash.Seed // for the hashes of subjects
}

// indexEntry is a schema with rules about a subject.
type indexEntry struct {
	hash uint64 // of the subject; compared before the name for speed
	subject
	*compiledSchema
	ruleIndexes []int32 // the rules about the subject
}

func (x schemaIndex) subjectHash(s subject) uint64 {
	return maphash.String(x.seed, s.name) + uint64(s.kind)
}

// lessEntry orders entries by subject, and entries of one subject by schema precedence.
func lessEntry(a, b indexEntry) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	if a.subject != b.subject {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.subject.name, b.subject.name)) < 0
	}
	if a.compiledSchema == nil || b.compiledSchema == nil { // nil is the search key before all schemas of a subject
		return a.compiledSchema == nil && b.compiledSchema != nil
	}
	return a.compare(b.compiledSchema) < 0
}

func newIndex() schemaIndex {
	return schemaIndex{sorted.NewSet(lessEntry, 0), maphash.MakeSeed()}
}

// snapshot returns a copy that may be read while the original changes.
func (x schemaIndex) snapshot() schemaIndex { return schemaIndex{x.tree.Copy(), x.seed} }

func (x schemaIndex) add(schema *compiledSchema) {
	for s, ruleIndexes := range schema.subjects {
		x.tree.Set(indexEntry{x.subjectHash(s), s, schema, ruleIndexes})
	}
}

func (x schemaIndex) remove(schema *compiledSchema) {
	for s := range schema.subjects {
		x.tree.Delete(indexEntry{hash: x.subjectHash(s), subject: s, compiledSchema: schema})
	}
}

// findSchema returns the first schema that matches a request and whose level exists.
func (x schemaIndex) findSchema(user *request.User, info *requestinfo.Info, levels map[string]*levelSpec) *compiledSchema {
	f := schemaFinder{info: info, levels: levels}
	f.searchSubject(x, subject{kind: anySubject})
	f.searchSubject(x, subject{userSubject, user.Name})
	for _, g := range user.Groups {
		f.searchSubject(x, subject{groupSubject, g})
	}
	if namespace, ok := serviceAccountNamespace(user.Name); ok {
		f.searchSubject(x, subject{namespaceSubject, namespace})
	}
	return f.matched
}

// schemaFinder searches subject by subject. The schema found so far limits the next search.
type schemaFinder struct {
	info    *requestinfo.Info
	levels  map[string]*levelSpec
	matched *compiledSchema
}

// searchSubject searches the schemas with rules about a subject for one that precedes matched.
func (f *schemaFinder) searchSubject(x schemaIndex, s subject) {
	x.tree.Ascend(indexEntry{hash: x.subjectHash(s), subject: s}, func(entry indexEntry) bool {
		if entry.subject != s || f.matched != nil && entry.compare(f.matched) >= 0 {
			return false
		}
		if entry.matchesAny(entry.ruleIndexes, f.info) && f.levels[entry.level] != nil {
			f.matched = entry.compiledSchema
			return false
		}
		return true
	})
}
