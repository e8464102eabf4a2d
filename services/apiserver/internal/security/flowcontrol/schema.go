package flowcontrol

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// compiledSchema is a flow schema in a form that is fast to match. It does not change.
type compiledSchema struct {
	name, uid, level string
	precedence       int32
	distinguisher    flowcontrolv1.FlowDistinguisherMethodType // or ""
	all              []rule
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

// rule describes the requests that a rule matches, apart from their subjects.
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
func compileSchema(s *flowcontrolv1.FlowSchema) *compiledSchema {
	r := &compiledSchema{
		name: s.Name, uid: string(s.UID), level: s.Spec.PriorityLevelConfiguration.Name, precedence: s.Spec.MatchingPrecedence,
		all: make([]rule, len(s.Spec.Rules)), subjects: map[subject][]int32{},
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		r.distinguisher = m.Type
	}
	for i := range s.Spec.Rules {
		p, one := &s.Spec.Rules[i], &r.all[i]
		for j := range p.ResourceRules {
			q := &p.ResourceRules[j]
			one.resources = append(one.resources, resourceRule{newNameSet(q.Verbs), newNameSet(q.APIGroups), newNameSet(q.Resources), newNameSet(q.Namespaces), q.ClusterScope})
		}
		for j := range p.NonResourceRules {
			q := &p.NonResourceRules[j]
			one.paths = append(one.paths, pathRule{newNameSet(q.Verbs), newNameSet(q.NonResourceURLs)})
		}
		for j := range p.Subjects {
			r.addSubject(&p.Subjects[j], int32(i))
		}
	}
	return r
}

// addSubject records that rule i is about a subject.
func (r *compiledSchema) addSubject(s *flowcontrolv1.Subject, i int32) {
	var key subject
	switch {
	case s.User != nil && s.User.Name == flowcontrolv1.NameAll, s.Group != nil && s.Group.Name == flowcontrolv1.NameAll:
	case s.User != nil:
		key = subject{userSubject, s.User.Name}
	case s.Group != nil:
		key = subject{groupSubject, s.Group.Name}
	case s.ServiceAccount != nil && s.ServiceAccount.Name == flowcontrolv1.NameAll:
		key = subject{namespaceSubject, s.ServiceAccount.Namespace}
	case s.ServiceAccount != nil:
		key = subject{userSubject, satoken.Username(s.ServiceAccount.Namespace, s.ServiceAccount.Name)}
	default:
		return
	}
	if of := r.subjects[key]; len(of) == 0 || of[len(of)-1] != i {
		r.subjects[key] = append(of, i)
	}
}

// compare orders schemas by precedence and name.
func (r *compiledSchema) compare(o *compiledSchema) int {
	return cmp.Or(cmp.Compare(r.precedence, o.precedence), cmp.Compare(r.name, o.name))
}

// matchesAny reports whether any of the given rules matches a request.
func (r *compiledSchema) matchesAny(some []int32, op *requestinfo.Info) bool {
	for _, i := range some {
		if r.all[i].matches(op) {
			return true
		}
	}
	return false
}

func (r *rule) matches(op *requestinfo.Info) bool {
	if op.IsResource {
		for i := range r.resources {
			if r.resources[i].matches(op) {
				return true
			}
		}
		return false
	}
	for i := range r.paths {
		if p := &r.paths[i]; p.verbs.has(op.Verb) && p.paths.hasPath(op.Path) {
			return true
		}
	}
	return false
}

func (p *resourceRule) matches(op *requestinfo.Info) bool {
	if op.Namespace == "" {
		if !p.cluster {
			return false
		}
	} else if !p.namespaces.has(op.Namespace) {
		return false
	}
	return p.verbs.has(op.Verb) && p.groups.has(op.Group) && p.resources.hasResource(op.Resource, op.Subresource)
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

// flowOf returns the value of the flow distinguisher of a request.
func (r *compiledSchema) flowOf(u *request.User, op *requestinfo.Info) string {
	switch r.distinguisher {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return u.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return op.Namespace
	}
	return ""
}

// nameSet is a list of a rule with fast membership tests. A long list is a map.
type nameSet struct {
	all    bool     // the list contains "*"
	linear []string // a short list, or the path patterns of a long one
	set    map[string]struct{}
}

// maxLinear is the maximum length of a list that is searched linearly.
const maxLinear = 8

// newNameSet returns the set of the names in a list, or of all names if it contains a star.
func newNameSet(list []string) nameSet {
	switch {
	case slices.Contains(list, "*"):
		return nameSet{all: true}
	case len(list) <= maxLinear:
		return nameSet{linear: slices.Clone(list)}
	}
	n := nameSet{set: make(map[string]struct{}, len(list))}
	for _, s := range list {
		n.set[s] = struct{}{}
		if strings.HasSuffix(s, "*") {
			n.linear = append(n.linear, s)
		}
	}
	return n
}

func (n *nameSet) has(s string) bool {
	if n.all || slices.Contains(n.linear, s) {
		return true
	}
	_, ok := n.set[s]
	return ok
}

// hasResource reports whether the set has a resource or subresource. It does not allocate for short
// lists.
func (n *nameSet) hasResource(resource, sub string) bool {
	if sub == "" || n.all {
		return n.has(resource)
	}
	if n.set != nil {
		return n.has(resource + "/" + sub)
	}
	for _, s := range n.linear {
		if rest, ok := strings.CutPrefix(s, resource); ok && strings.HasPrefix(rest, "/") && rest[1:] == sub {
			return true
		}
	}
	return false
}

// hasPath reports whether the set has a path. A name that ends with an asterisk matches by prefix.
func (n *nameSet) hasPath(path string) bool {
	if n.has(path) {
		return true
	}
	for _, s := range n.linear {
		if prefix, ok := strings.CutSuffix(s, "*"); ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// index finds the schema of a request by its user, without a look at schemas about other users.
// Copies share unchanged nodes.
type index struct {
	tree *btree.BTreeG[indexEntry]
	seed maphash.Seed // for the hashes of subjects
}

// indexEntry is a schema with rules about a subject.
type indexEntry struct {
	hash uint64 // of the subject; compared before the name for speed
	subject
	*compiledSchema
	ruleIndexes []int32 // the rules about the subject
}

// hash returns the hash of a subject.
func (x index) hash(s subject) uint64 { return maphash.String(x.seed, s.name) + uint64(s.kind) }

// less orders entries by subject, and those of one subject by schema precedence.
func less(a, b indexEntry) bool {
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

func newIndex() index {
	return index{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}), maphash.MakeSeed()}
}

// copy returns a copy that may be read while the original changes.
func (x index) copy() index { return index{x.tree.Copy(), x.seed} }

func (x index) add(r *compiledSchema) {
	for s, ruleIndexes := range r.subjects {
		x.tree.Set(indexEntry{x.hash(s), s, r, ruleIndexes})
	}
}

func (x index) remove(r *compiledSchema) {
	for s := range r.subjects {
		x.tree.Delete(indexEntry{hash: x.hash(s), subject: s, compiledSchema: r})
	}
}

// find returns the first schema that matches a request and whose level exists.
func (x index) find(u *request.User, op *requestinfo.Info, levels map[string]*levelSpec) *compiledSchema {
	f := finder{op: op, levels: levels}
	f.search(x, subject{kind: anySubject})
	f.search(x, subject{userSubject, u.Name})
	for _, g := range u.Groups {
		f.search(x, subject{groupSubject, g})
	}
	if namespace, ok := serviceAccountNamespace(u.Name); ok {
		f.search(x, subject{namespaceSubject, namespace})
	}
	return f.found
}

// finder searches subject by subject. The schema found so far limits the next search.
type finder struct {
	op     *requestinfo.Info
	levels map[string]*levelSpec
	found  *compiledSchema
}

func (f *finder) search(x index, s subject) {
	x.tree.Ascend(indexEntry{hash: x.hash(s), subject: s}, func(entry indexEntry) bool {
		if entry.subject != s || f.found != nil && entry.compare(f.found) >= 0 {
			return false
		}
		if entry.matchesAny(entry.ruleIndexes, f.op) && f.levels[entry.level] != nil {
			f.found = entry.compiledSchema
			return false
		}
		return true
	})
}
