// Package gitclone keeps the local copy of the state repository: of one branch, as much as proves one file.
//
// # Two rules
//
// Nothing that the server sends is believed or visible before it is proven; and what has been published stays published
// until something better is. So Fetch goes
//
//	ask for the head → climb the ladder into memory: history (does it descend from the revision in force?),
//	  then the chain revision → folders → file, each by its hash → valid? → one transaction → Desired
//
// and an error at any arrow leaves Desired as it was. A head that is published already ends at the first arrow: no
// download, no write, no sync. A head that was refused for what it is (history, file, size) is remembered and not
// downloaded again; its error is reported each time. One that was refused because too much came is asked for again, ever
// more rarely: a byte that is damaged on its way can look like that.
//
// # What is asked
//
// Protocol v2 where the server has it (wire.go): one line for one branch, however many there are, and over HTTP one
// request of half a kilobyte, since what the server speaks is remembered. Else the older protocol's list of all branches,
// of which one line is kept. Then a ladder (ladder.go), of which each rung ends in the same proof:
//
//	path         servers with filters: the revisions since the stored one, which are the proof of descent, without
//	             folders and files; then what is new of a few revisions in one request, or else folder by folder
//	thin         what has changed since the stored revision, as changes to what is stored
//	incremental  the same in full: for servers that know no thin packs
//	tip          a new clone on a server without filters: what the head has changed against its parent, and then what is
//	             missing, by its hash (tip.go)
//	depth-1      all of one revision
//
// What a server leaves out because it thinks that it is here (other devices' files are not) is asked for by its hash. A
// rung that fails hands over to the next within the fetch, or after two broken links; the rung that holds is remembered
// and the ones above are tried again later. Bounded are bytes, objects, memory, depth of the path, and the time of each
// step.
//
// # What is on disk
//
// One bbolt file (package boltstore) with the revision and the folders of the chain and no others, the branch's
// reference, the shallow list (one entry), the provenance, and the document, which is the file's object as well, under a
// key of its own: a start needs to decode no folder of 10,000 names. The file does not grow with the number of changes.
// It is a cache: if it is damaged it is set aside, reported (Notices) and made anew, and if it cannot be written, what it
// holds stays readable.
//
// # Places left
//
// The signature of a revision would be checked in judge, before its history.
package gitclone
