package handlers

import (
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// selectionOf returns the selection of a list or watch.
func selectionOf(c *Call, o *listOptions) watchcache.Selection {
	s := watchcache.Selection{Namespace: c.Op.Namespace, Name: c.Op.Name, Labels: o.label, Fields: o.field, Readable: true, Before: o.served != nil}
	if !c.Namespaced {
		s.Namespace = ""
	}
	return s
}

// listPrefix returns the key prefix of a list's objects. Continue tokens are relative to it, which
// includes the namespace, as in Kubernetes.
func (c *Call) listPrefix() string {
	if c.Namespaced && c.Op.Namespace != "" {
		return c.Prefix + c.Op.Namespace + "/"
	}
	return c.Prefix
}

// selectsAll reports whether there is no selector.
func (o *listOptions) selectsAll() bool {
	return o.label.Empty() && o.field.Empty() && o.served == nil
}
