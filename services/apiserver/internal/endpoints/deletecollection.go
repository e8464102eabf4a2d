package endpoints

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/request"
)

// deleteCollection answers DELETE of a collection: it deletes, one after the
// other, what the list of it shows, and answers that list.
func (a *API) deleteCollection(c *call) error {
	f, err := a.negotiate(c, true)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.r.URL.Query(), c.coder, false, a.WatchList)
	if err != nil {
		return err
	}
	do, err := a.deleteOptions(c)
	if err != nil {
		return err
	}
	c.warnOfOrphans(do)
	p, err := a.page(c, o)
	if err != nil {
		return err
	}
	for _, s := range p.items {
		info := *c.info
		info.Namespace, info.Name = s.Namespace, s.Name
		one := &call{resource: c.resource, w: c.w, r: c.r.WithContext(request.WithInfo(c.ctx(), &info)), info: &info}
		if _, err := a.deleteObject(one, do.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	meta := metav1.ListMeta{ResourceVersion: fmt.Sprint(p.revision), RemainingItemCount: p.remaining}
	if p.last != "" {
		meta.Continue = encodeContinue(p.last, c.listPrefix(), p.revision)
	}
	return f.writeList(c, meta, p.items)
}
