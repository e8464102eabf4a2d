package writes

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// uniqueOwners removes duplicate owner references and adds a warning.
func uniqueOwners(ctx context.Context, obj registry.Object, admitted bool) {
	refs := obj.GetOwnerReferences()
	var unique []metav1.OwnerReference
	var twice []string // the UIDs of the removed references
	seen := newReferences(refs)
	for i, r := range refs {
		switch again := seen.again(i); {
		case !again && twice == nil:
		case !again:
			unique = append(unique, r)
		default:
			if twice == nil {
				unique = slices.Clone(refs[:i])
			}
			twice = append(twice, string(r.UID))
		}
	}
	if len(twice) == 0 {
		return
	}
	obj.SetOwnerReferences(unique)
	format := ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
	if admitted {
		format = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
	}
	request.Warn(ctx, fmt.Sprintf(format, strings.Join(twice, ", ")))
}

// references detects duplicates in a list of owner references. It stores only the index of each,
// because a list may have hundreds of thousands.
type references struct {
	all   []metav1.OwnerReference
	seed  maphash.Seed
	known map[uint64]int32 // index by hash; nil for short lists, which are compared pairwise
}

// fewReferences is the number of references up to which pairwise comparison is used.
const fewReferences = 8

func newReferences(all []metav1.OwnerReference) references {
	r := references{all: all}
	if len(all) > fewReferences {
		r.seed, r.known = maphash.MakeSeed(), make(map[uint64]int32, len(all))
	}
	return r
}

// again reports whether the reference at index i equals an earlier one. It must be called for all
// indices in order.
func (r references) again(i int) bool {
	this := referenceOf(r.all[i])
	if r.known == nil {
		return slices.ContainsFunc(r.all[:i], func(o metav1.OwnerReference) bool { return referenceOf(o) == this })
	}
	for h := maphash.Comparable(r.seed, this); ; h++ { // a collision uses the next key
		at, taken := r.known[h]
		if !taken {
			r.known[h] = int32(i)
			return false
		}
		if referenceOf(r.all[at]) == this {
			return true
		}
	}
}

// reference holds the fields of an owner reference in comparable form.
type reference struct {
	apiVersion, kind, name string
	uid                    types.UID
	controller, blocks     flag
}

type flag struct{ set, value bool }

func referenceOf(r metav1.OwnerReference) reference {
	flagOf := func(b *bool) flag { return flag{b != nil, b != nil && *b} }
	return reference{r.APIVersion, r.Kind, r.Name, r.UID, flagOf(r.Controller), flagOf(r.BlockOwnerDeletion)}
}
