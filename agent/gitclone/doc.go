// Package gitclone keeps the local copy of the state repository: of one branch, as much as proves one file.
//
// # Two rules
//
// Nothing that the server sends, and nothing that go-git returns, is believed or visible before it is proven; and what
// has been published stays published until something better is. So Fetch goes
//
//	ask for the head → download into memory → prove the chain revision → folders → file by its hashes
//	  → history: does it descend from the revision in force? → valid? → one transaction → Desired
//
// and an error at any arrow leaves Desired as it was. A head that is published already ends at the first arrow: no
// download, no write, no sync. A head that was refused for what it is (history, file, size) is remembered and not
// downloaded again; its error is reported each time.
//
// # What is on disk
//
// One bbolt file (package boltstore) with the objects of the chain and no others, the branch's reference, the shallow
// list (one entry), the provenance, and the document under a key of its own, so that a start needs to decode no folder
// of 10,000 names. The file does not grow with the number of changes. It is a cache: if it is damaged it is set aside,
// reported (Notices) and made anew, and if it cannot be written, what it holds stays readable.
//
// # Places left
//
// download is where other rungs of a ladder go (a walk with tree:0, shallow and have); each ends in prove. The signature
// of a revision would be checked between prove and history.
package gitclone
