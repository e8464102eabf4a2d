package endpoints

import (
	"binnacle/services/apiserver/internal/watchcache"
)

// selectionOf is what a list or watch wants of a resource.
func selectionOf(c *Call, o *listOptions) watchcache.Selection {
	s := watchcache.Selection{Namespace: c.Op.Namespace, Name: c.Op.Name, Labels: o.label, Fields: o.field, Readable: true, Before: o.served != nil}
	if !c.Namespaced {
		s.Namespace = ""
	}
	return s
}

// listPrefix is what the keys of a list begin with. Tokens are relative to the
// resource's own prefix below the namespace, as Kubernetes has them.
func (c *Call) listPrefix() string {
	if c.Namespaced && c.Op.Namespace != "" {
		return c.Prefix + c.Op.Namespace + "/"
	}
	return c.Prefix
}

// selectsAll tells that no selector leaves anything out.
func (o *listOptions) selectsAll() bool {
	return o.label.Empty() && o.field.Empty() && o.served == nil
}
