package tokenreviews

import (
	"slices"
	"strings"
	"sync"

	"binnacle/libs/authenticator"
	"binnacle/libs/bootstraptoken"
	"binnacle/libs/satoken"
)

// object is an object that a result depends on.
type object = satoken.Object

// objectKey identifies an object without its uid. An object of the same name may have another uid.
type objectKey struct {
	kind            satoken.Kind
	namespace, name string
}

func objectKeyOf(o object) objectKey { return objectKey{o.Kind, o.Namespace, o.Name} }

// dependencyIndex finds the cached and running reviews that depend on an object. A key may belong
// to a cached and a running review at the same time, so the index counts how often it was added.
type dependencyIndex struct {
	mu       sync.Mutex // leaf lock
	byObject map[objectKey]map[cacheKey]int
}

// add records that a review depends on objects.
func (i *dependencyIndex) add(k cacheKey, objects []object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byObject == nil {
		i.byObject = map[objectKey]map[cacheKey]int{}
	}
	for _, o := range objects {
		dependency := objectKeyOf(o)
		if i.byObject[dependency] == nil {
			i.byObject[dependency] = map[cacheKey]int{}
		}
		i.byObject[dependency][k]++
	}
}

// remove reverts one call of add with the same arguments.
func (i *dependencyIndex) remove(k cacheKey, objects []object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range objects {
		dependency := objectKeyOf(o)
		i.byObject[dependency][k]--
		if i.byObject[dependency][k] == 0 {
			delete(i.byObject[dependency], k)
		}
		if len(i.byObject[dependency]) == 0 {
			delete(i.byObject, dependency)
		}
	}
}

// dependentKeys returns the keys of the reviews that depend on an object.
func (i *dependencyIndex) dependentKeys(o object) []cacheKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []cacheKey
	for k := range i.byObject[objectKeyOf(o)] {
		out = append(out, k)
	}
	return out
}

// unverifiedClaims returns the claims of a token without verification. It returns no claims for a
// malformed token.
func unverifiedClaims(token string) satoken.UnverifiedClaims {
	if id, _, ok := bootstraptoken.Split(token); ok {
		return satoken.UnverifiedClaims{Objects: []object{bootstrapSecret(id)}}
	}
	return satoken.ParseUnverified(token)
}

// bootstrapSecret returns the Secret of a bootstrap token.
func bootstrapSecret(id string) object {
	return object{Kind: satoken.KindSecret, Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(id)}
}

// withUserObjects adds the objects that a user's name and extra information name. For opaque
// tokens, which a service reviewed, nothing else is known. An object named by both token and user
// occurs twice, and must match both.
func withUserObjects(objects []object, user *authenticator.User) []object {
	objects = slices.Clone(objects)
	add := func(o object) { objects = append(objects, o) }
	if id, ok := strings.CutPrefix(user.Name, bootstraptoken.UserPrefix); ok && bootstraptoken.ValidID(id) {
		add(bootstrapSecret(id))
	}
	namespace, name, ok := satoken.SplitUsername(user.Name)
	if !ok {
		return objects
	}
	add(object{Kind: satoken.KindServiceAccount, Namespace: namespace, Name: name, UID: user.UID})
	single := func(key string) string {
		if v := user.Extra[key]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	if pod := single(satoken.ExtraPodName); pod != "" {
		add(object{Kind: satoken.KindPod, Namespace: namespace, Name: pod, UID: single(satoken.ExtraPodUID)})
	} else if node := single(satoken.ExtraNodeName); node != "" {
		add(object{Kind: satoken.KindNode, Name: node, UID: single(satoken.ExtraNodeUID)})
	}
	return objects
}
