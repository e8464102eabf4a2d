package endpoints

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/watchcache"
)

// deleteCollection answers DELETE of a collection: it deletes, one after the
// other, what the list of it shows, and answers that list.
func (a *API) deleteCollection(c *Call) error {
	f, err := a.ForList(c.R, c.resource)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.R.URL.Query(), c.Coder, false, a.WatchList)
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
	err = p.Each(func(s *watchcache.Entry) error {
		one := &Call{resource: c.resource, api: a, W: c.W, R: c.R, Op: c.Op.On(s.Namespace, s.Name)}
		req := one.write(do.DeepCopy(), do.DryRun, "", "")
		req.Collection = true
		if _, err := a.Writes.Delete(c.Context(), req); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.show(c, f)
}
