"""The storage contract between the hook that writes answers and the readers that stream them (DESIGN §3).

::

    layout, record           what files are called and which bytes are in them
    writer                   LaneWriter: append, sync, maintain
     ├── claim, lane         making a spool, taking a lane; recovery puts it in order
     ├── segment             the two files at hand, and what of them is committed
     ├── retention           what has to go
     ├── stats, schema_uses  counters of a lane
     └── schemas             answer schemas of the spool
    access                   what a reader sees: SpoolAccess and its values
     ├── reader, lane_files  through the folder
     └── http, http_answers  through the server
    files, os_errors         whole files or none; refusals of the operating system in words
"""
