package flowcontrol

import (
	"cmp"
	"hash/maphash"

	"github.com/tidwall/btree"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// index finds the schema of a request by who makes it: those about others are not
// looked at. Copies share what does not differ.
type index struct {
	tree *btree.BTreeG[about]
	seed maphash.Seed // of the hashes of subjects
}

// about is a schema that has rules about a subject.
type about struct {
	hash uint64 // of the subject: numbers are compared faster than names
	subject
	*rules
	of []int32 // its rules
}

// hash of a subject.
func (x index) hash(s subject) uint64 { return maphash.String(x.seed, s.name) + uint64(s.kind) }

// before orders by subject, and of one subject as schemas are asked.
func before(a, b about) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	if a.subject != b.subject {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.subject.name, b.subject.name)) < 0
	}
	if a.rules == nil || b.rules == nil { // where those of a subject begin
		return a.rules == nil && b.rules != nil
	}
	return a.compare(b.rules) < 0
}

func newIndex() index {
	return index{btree.NewBTreeGOptions(before, btree.Options{NoLocks: true}), maphash.MakeSeed()}
}

// copy is what can be read while this one is changed.
func (x index) copy() index { return index{x.tree.Copy(), x.seed} }

func (x index) put(r *rules) {
	for who, of := range r.subjects {
		x.tree.Set(about{x.hash(who), who, r, of})
	}
}

func (x index) drop(r *rules) {
	for who := range r.subjects {
		x.tree.Delete(about{hash: x.hash(who), subject: who, rules: r})
	}
}

// find returns the first schema that a request is of, of those that lead to one of some
// levels.
func (x index) find(u *request.User, op *requestinfo.Info, levels map[string]*plan) *rules {
	f := finder{op: op, levels: levels}
	f.ask(x, subject{kind: anyone})
	f.ask(x, subject{userNamed, u.Name})
	for _, g := range u.Groups {
		f.ask(x, subject{groupNamed, g})
	}
	if namespace, ok := accountNamespace(u.Name); ok {
		f.ask(x, subject{accountsOf, namespace})
	}
	return f.found
}

// finder goes by subjects; what it has found of one bounds the search by the next.
type finder struct {
	op     *requestinfo.Info
	levels map[string]*plan
	found  *rules
}

func (f *finder) ask(x index, who subject) {
	x.tree.Ascend(about{hash: x.hash(who), subject: who}, func(a about) bool {
		if a.subject != who || f.found != nil && a.compare(f.found) >= 0 {
			return false
		}
		if a.does(a.of, f.op) && f.levels[a.level] != nil {
			f.found = a.rules
			return false
		}
		return true
	})
}
