// Package traced is a store that makes spans of what is asked of another, for requests
// that are traced, and tells of the revisions that they wrote, and of the time that it took.
// The app puts it over the store only where traces are made or requests are audited.
package traced
