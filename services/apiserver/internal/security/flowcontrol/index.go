package flowcontrol

import (
	"cmp"
	"hash/maphash"

	"github.com/tidwall/btree"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// index finds the schema of a request by its user, without a look at schemas about other users. Copies
// share unchanged nodes.
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
