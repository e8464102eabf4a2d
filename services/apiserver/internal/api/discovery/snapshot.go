package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
)

// snapshot holds all documents at one time. It is immutable, except that documents cache their
// encoded forms. It shares the documents of unchanged groups with the previous snapshot.
type snapshot struct {
	all          []*group
	byName       map[string]*group
	core, groups *document                         // /api and /apis
	group        map[string]*document              // /apis/<group>
	groupVersion map[schema.GroupVersion]*document // /api/<version> and /apis/<group>/<version>
	items        map[string]*groupItem             // by the name of the group
	// aggregatedCore and aggregatedNamed are the aggregated forms of /api and /apis.
	aggregatedCore, aggregatedNamed *document
}

// newSnapshot returns the snapshot of groups. address is the server's address in /api. old is the
// previous snapshot, or nil.
func newSnapshot(all []*group, address string, old *snapshot) *snapshot {
	out := &snapshot{
		all: all, byName: map[string]*group{}, items: map[string]*groupItem{},
		group: map[string]*document{}, groupVersion: map[schema.GroupVersion]*document{},
	}
	core := &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}},
	}
	var named []*group
	var coreItems, namedItems []*groupItem
	for _, g := range all {
		out.byName[g.name] = g
		if old != nil && g.equal(old.byName[g.name]) {
			out.copyGroup(g, old)
		} else {
			out.addGroup(g)
		}
		item := out.items[g.name]
		if g.name == "" {
			for _, v := range g.versions {
				core.Versions = append(core.Versions, v.name)
			}
			coreItems = append(coreItems, item)
			continue
		}
		named = append(named, g)
		if item != nil {
			namedItems = append(namedItems, item)
		}
	}
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	slices.SortStableFunc(named, compareInGroupList)
	for _, g := range named {
		list.Groups = append(list.Groups, apiGroup(g))
	}
	out.core = newDocument(core)
	out.groups = newDocument(list)
	out.aggregatedCore = newAggregatedDocument(coreItems)
	out.aggregatedNamed = newAggregatedDocument(namedItems)
	return out
}

// copyGroup adds the documents of an unchanged group from another snapshot.
func (s *snapshot) copyGroup(g *group, from *snapshot) {
	for _, groupVersion := range g.versions {
		if groupVersion.unserved {
			continue
		}
		gv := schema.GroupVersion{Group: g.name, Version: groupVersion.name}
		s.groupVersion[gv] = from.groupVersion[gv]
	}
	if doc := from.group[g.name]; doc != nil {
		s.group[g.name] = doc
	}
	s.items[g.name] = from.items[g.name]
}

// addGroup adds new documents of a group.
func (s *snapshot) addGroup(added *group) {
	served := false
	for _, groupVersion := range added.versions {
		if groupVersion.unserved {
			continue
		}
		gv := schema.GroupVersion{Group: added.name, Version: groupVersion.name}
		s.groupVersion[gv] = newDocument(resourceList(gv, groupVersion.resources))
		served = true
	}
	if added.name != "" {
		object := apiGroup(added)
		object.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		s.group[added.name] = newDocument(&object)
	}
	if served {
		s.items[added.name] = newGroupItem(added)
	}
}

// resourceList returns the resource list of a group version. As in Kubernetes, the list of the core
// group has no apiVersion.
func resourceList(gv schema.GroupVersion, resources []metav1.APIResource) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList"},
		GroupVersion: gv.String(),
		APIResources: resources,
	}
	if gv.Group != "" {
		list.APIVersion = "v1"
	}
	if list.APIResources == nil {
		list.APIResources = []metav1.APIResource{}
	}
	return list
}

// apiGroup returns the description of a group, without its type.
func apiGroup(g *group) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		gv := schema.GroupVersion{Group: g.name, Version: v.name}
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.name})
	}
	if len(out.Versions) > 0 {
		out.PreferredVersion = out.Versions[0]
	}
	return out
}

// paths returns the paths of all documents.
func (s *snapshot) paths() []string {
	out := []string{"/api", "/apis", "/apis/"}
	for _, group := range s.all {
		base := "/apis/" + group.name
		if group.name == "" {
			base = "/api"
		} else {
			out = append(out, base)
		}
		for _, v := range group.versions {
			out = append(out, base+"/"+v.name)
		}
	}
	return out
}

// document is an API object with a cache of its encoded forms.
type document struct {
	object func() protoObject
	// text, if set, returns the JSON of the object. It is cheaper than encoding the object.
	text func() ([]byte, error)

	mu     sync.Mutex // guards bodies; leaf lock
	bodies map[form]*body
}

// form is an encoding of a document. There are four: JSON, indented JSON, YAML and protobuf.
type form struct {
	media  string
	pretty bool
}

// body is an encoded document.
type body struct {
	bytes []byte
	etag  string
}

// protoObject is an API object that can be encoded as protobuf.
type protoObject interface {
	runtime.Object
	Marshal() ([]byte, error)
}

func newDocument(o protoObject) *document {
	return &document{object: func() protoObject { return o }, bodies: map[form]*body{}}
}

// body returns the document in a form, from the cache if possible. pretty applies to JSON only.
func (d *document) body(media string, pretty bool) (*body, error) {
	requested := form{media: media, pretty: pretty && media == api.MediaJSON}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.bodies[requested]; b != nil {
		return b, nil
	}
	raw, err := d.encode(requested)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	b := &body{bytes: raw, etag: `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
	d.bodies[requested] = b
	return b, nil
}

// encode encodes the document in a form.
func (d *document) encode(f form) ([]byte, error) {
	if d.text != nil && f == (form{media: api.MediaJSON}) {
		return d.text()
	}
	return encode(d.object(), f)
}

// encode encodes an object in a form.
func encode(message protoObject, requested form) ([]byte, error) {
	switch {
	case requested.media == api.MediaYAML:
		return yaml.Marshal(message)
	case requested.media == api.MediaProtobuf:
		raw, err := message.Marshal()
		if err != nil {
			return nil, err
		}
		apiVersion, kind := message.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
		b, err := u.Marshal()
		return append([]byte("k8s\x00"), b...), err
	case requested.media != api.MediaJSON:
		return nil, fmt.Errorf("discovery is not served as %s", requested.media)
	}
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	if requested.pretty {
		encoder.SetIndent("", "  ")
	}
	err := encoder.Encode(message)
	if requested.pretty { // as in Kubernetes, indented JSON ends without a newline
		buf.Truncate(max(0, buf.Len()-1))
	}
	return buf.Bytes(), err
}
